#include "kernels/gpu/ops/row_groups.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/gpu/resident.h"

namespace millrace::gpu {

Status GroupedRows::make(Memory& memory, llvm::ArrayRef<int64_t> rows, int64_t left_out,
                         bool ascending) {
  group_.resize(rows.size());
  distinct_.begin(rows.size());
  int64_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    group_[i] = -1;
    if (rows[i] == left_out) continue;
    ++kept;
    group_[i] = static_cast<int32_t>(distinct_.add(rows[i]));
  }
  rows_.assign(distinct_.ids().begin(), distinct_.ids().end());
  if (ascending) sort_groups();
  starts_at_ = count() * static_cast<int64_t>(sizeof(int64_t));
  sources_at_ = starts_at_ + (count() + 1) * static_cast<int64_t>(sizeof(int32_t));
  const int64_t bytes = sources_at_ + kept * static_cast<int64_t>(sizeof(int32_t));
  image_.assign(static_cast<size_t>(bytes), std::byte{0});
  std::copy(rows_.begin(), rows_.end(), reinterpret_cast<int64_t*>(image_.data()));
  auto* const starts = reinterpret_cast<int32_t*>(image_.data() + starts_at_);
  auto* const sources = reinterpret_cast<int32_t*>(image_.data() + sources_at_);
  for (const int32_t group : group_) {
    if (group >= 0) ++starts[group + 1];
  }
  for (int64_t g = 0; g < count(); ++g) starts[g + 1] += starts[g];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (group_[i] >= 0) sources[starts[group_[i]]++] = static_cast<int32_t>(i);
  }
  // filling has advanced each start to the next group's
  for (int64_t g = count(); g > 0; --g) starts[g] = starts[g - 1];
  starts[0] = 0;
  if (block_ == nullptr || block_->bytes() < bytes) {
    // some more, since the number of rows differs between steps
    MILLRACE_ASSIGN_OR_RETURN(block_, memory.allocate(bytes + bytes / 4 + 256, "row numbers"));
  }
  return memory.copy_in(image_.data(), block_->data(), bytes);
}

void GroupedRows::sort_groups() {
  std::vector<int32_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
    return rows_[static_cast<size_t>(a)] < rows_[static_cast<size_t>(b)];
  });
  std::vector<int32_t> place(order.size());
  std::vector<int64_t> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    place[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    sorted.push_back(rows_[static_cast<size_t>(order[i])]);
  }
  rows_ = std::move(sorted);
  for (int32_t& group : group_) group = group < 0 ? group : place[static_cast<size_t>(group)];
}

RowGroups GroupedRows::groups(const float* values, int64_t width) const {
  return {values, reinterpret_cast<const int64_t*>(block_->data()),
          reinterpret_cast<const int32_t*>(block_->data() + starts_at_),
          reinterpret_cast<const int32_t*>(block_->data() + sources_at_),
          Divider(std::max<int64_t>(width, 1))};
}

Status read_ids(Memory& memory, const Tensor& ids, std::vector<int64_t>& to) {
  memory.device().note_unrepeatable();
  if (ids.dtype() != DType::kInt64 && ids.dtype() != DType::kInt32)
    return refuse("ids are {}", describe(ids));
  const auto count = static_cast<size_t>(ids.numel());
  const std::byte* from = nullptr;
  std::vector<std::byte> copy;
  const ResidentLayout* const there = resident(ids);
  if (there != nullptr && there->host() != nullptr) {
    from = there->host()->raw();
  } else {
    copy.resize(static_cast<size_t>(ids.bytes()));
    if (count > 0) MILLRACE_RETURN_IF_ERROR(memory.copy_out(ids.raw(), copy.data(), ids.bytes()));
    from = copy.data();
  }
  to.resize(count);
  if (ids.dtype() == DType::kInt64) {
    if (count > 0) std::memcpy(to.data(), from, count * sizeof(int64_t));
  } else {
    const auto* const small = reinterpret_cast<const int32_t*>(from);
    std::copy(small, small + count, to.begin());
  }
  return Ok();
}

}  // namespace millrace::gpu
