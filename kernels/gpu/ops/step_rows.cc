#include "kernels/gpu/ops/step_rows.h"

#include <utility>

namespace millrace::gpu {

Status StepRows::build(llvm::ArrayRef<int64_t> offsets, bool reverse) {
  std::vector<int64_t> key(offsets.begin(), offsets.end());
  key.push_back(reverse ? 1 : 0);
  if (key != offsets_) {
    order_.build(offsets, reverse);
    offsets_ = std::move(key);
  }
  const Lod lod = order_.as_lod();
  const LodLevel& rows = lod.level(1);
  const LodLevel& sequences = lod.level(2);
  std::vector<int64_t> numbers(rows.begin(), rows.end());
  numbers.resize(3 * rows.size());
  int64_t* const positions = numbers.data() + rows.size();
  int64_t* const before = positions + rows.size();
  for (int64_t step = 0; step < order_.steps(); ++step) {
    for (int64_t i = 0; i < order_.count(step); ++i) {
      const int64_t at = order_.start(step) + i;
      positions[rows[static_cast<size_t>(at)]] = at;
      before[at] = step == 0 ? -1 - sequences[static_cast<size_t>(i)] : order_.start(step - 1) + i;
    }
  }
  numbers.insert(numbers.end(), sequences.begin(), sequences.end());
  const size_t ranks = numbers.size();
  numbers.resize(ranks + sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i)
    numbers[ranks + static_cast<size_t>(sequences[i])] = static_cast<int64_t>(i);
  MILLRACE_ASSIGN_OR_RETURN(numbers_, held_.get(memory_, numbers));
  return Ok();
}

Status StepRows::pick(const int64_t* rows, const float* from, const float* other, int64_t width,
                      int64_t count, float* to) const {
  return each(memory_.device(),
              PickRows<uint32_t>{reinterpret_cast<const uint32_t*>(from),
                                 reinterpret_cast<const uint32_t*>(other), rows,
                                 reinterpret_cast<uint32_t*>(to), Divider(width), 1},
              count * width);
}

void ScratchFloats::add(float** place, int64_t count, float* given) {
  *place = given;
  if (given != nullptr) return;
  wanted_.emplace_back(place, total_);
  total_ += (count + 63) / 64 * 64;  // the library wants aligned matrices
}

Status ScratchFloats::open() {
  if (total_ > 0) {
    MILLRACE_ASSIGN_OR_RETURN(float* const begin, kept_.get(total_));
    for (const auto& [place, offset] : wanted_) *place = begin + offset;
  }
  wanted_.clear();
  total_ = 0;
  return Ok();
}

StatusOr<float*> output_of_size(Tensor* tensor, int64_t count) {
  if (tensor == nullptr) return static_cast<float*>(nullptr);
  if (tensor->dtype() != DType::kFloat32 || tensor->numel() != count)
    return refuse("the output is {}, expected {} of f32", describe(*tensor), count);
  return floats(tensor);
}

Status sum_columns(Device& device, const float* from, int64_t rows, int64_t width, float* to) {
  return to == nullptr ? Ok() : lanes(device, SumMiddle{from, to, rows, width, 1, 1.0F}, width);
}

}  // namespace millrace::gpu
