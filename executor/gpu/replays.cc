#include "executor/gpu/replays.h"

#include <algorithm>
#include <utility>

#include <llvm/ADT/STLExtras.h>

#include "framework/tensor/tensor.h"
#include "framework/tensor/value.h"
#include "kernels/gpu/resident.h"

namespace millrace::executor {
namespace {

// Fewer ops are not worth a recording.
constexpr size_t kFewestOps = 2;

}  // namespace

Replays::Replays(gpu::Device& device, llvm::ArrayRef<CompiledOp> compiled_ops)
    : device_(device),
      ops_(compiled_ops),
      steady_(static_cast<unsigned>(compiled_ops.size())),
      was_steady_(steady_.size()),
      unrecordable_(steady_.size()),
      segment_of_(compiled_ops.size(), -1) {}

// The layouts of tensors at one address of device memory are alike.
const Layout* Replays::layout_of(const Tensor& tensor) {
  return gpu::resident(tensor) != nullptr ? nullptr : tensor.layout().get();
}

bool Replays::still(const Seen& seen, Value* const* table) {
  const auto* const tensor = table[seen.index]->get_if<Tensor>();
  if (tensor == nullptr) return seen.data == nullptr && table[seen.index]->holds<std::monostate>();
  return tensor->raw() == seen.data && layout_of(*tensor) == seen.layout &&
         tensor->dtype() == seen.dtype && tensor->dims() == llvm::ArrayRef<int64_t>(seen.dims) &&
         tensor->lod() == seen.lod;
}

std::vector<Replays::Seen> Replays::look(size_t first, size_t end, Value* const* table) const {
  std::vector<int32_t> used;
  for (size_t i = first; i < end; ++i) {
    if (!steady_.test(static_cast<unsigned>(i))) continue;
    const CompiledOp& op = ops_[i];
    for (const llvm::ArrayRef<int32_t> list :
         {llvm::ArrayRef<int32_t>(op.inputs), llvm::ArrayRef<int32_t>(op.outputs)})
      std::copy_if(list.begin(), list.end(), std::back_inserter(used),
                   [](int32_t index) { return index >= 0; });
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  std::vector<Seen> seen;
  seen.reserve(used.size());
  for (const int32_t index : used) {
    const auto* const tensor = table[index]->get_if<Tensor>();
    if (tensor == nullptr) {
      seen.push_back({index, nullptr, nullptr, DType::kFloat32, {}, {}});
    } else {
      seen.push_back({index, tensor->raw(), layout_of(*tensor), tensor->dtype(),
                      Dims(tensor->dims().begin(), tensor->dims().end()), tensor->lod()});
    }
  }
  return seen;
}

StatusOr<size_t> Replays::before(size_t op, Value* const* table) {
  const int32_t number = segment_of_[op];
  if (number < 0) return size_t{0};
  Segment& segment = segments_[static_cast<size_t>(number)];
  if (!llvm::all_of(segment.seen, [&](const Seen& seen) { return still(seen, table); })) {
    drop();
    return size_t{0};
  }
  if (segment.recording == nullptr) {
    MILLRACE_RETURN_IF_ERROR(device_.begin_recording());
    recording_ = number;
    return size_t{0};
  }
  for (const int32_t index : segment.integers) gpu::forget_host(*table[index]->get_if<Tensor>());
  MILLRACE_RETURN_IF_ERROR(segment.recording->replay());
  for (size_t i = segment.first; i < segment.end; ++i) steady_.set(static_cast<unsigned>(i));
  return segment.end - segment.first;
}

Status Replays::after(size_t op, bool steady) {
  const auto bit = static_cast<unsigned>(op);
  if (steady) {
    steady_.set(bit);
  } else {
    steady_.reset(bit);
  }
  if (recording_ < 0) return Ok();
  if (!steady) return {StatusCode::kInternal, "the op does not do the same in every run"};
  Segment& segment = segments_[static_cast<size_t>(recording_)];
  if (op + 1 != segment.end) return Ok();
  recording_ = -1;
  StatusOr<std::unique_ptr<gpu::Recording>> made = device_.end_recording();
  if (!made.ok()) {
    lost_ = static_cast<int64_t>(segment.first);
    unrecordable_.set(static_cast<unsigned>(segment.first), static_cast<unsigned>(segment.end));
    drop();
    return std::move(made).status();
  }
  segment.recording = *std::move(made);
  return segment.recording->replay();
}

int64_t Replays::failed(size_t op) {
  if (lost_ >= 0) return std::exchange(lost_, -1);
  if (recording_ < 0) return -1;
  const auto first = static_cast<int64_t>(segments_[static_cast<size_t>(recording_)].first);
  (void)device_.end_recording();  // the error that is known is the first one
  unrecordable_.set(static_cast<unsigned>(op));
  drop();
  return first;
}

void Replays::after_run(Value* const* table) {
  if (!segments_.empty()) return;
  std::vector<Seen> seen = look(0, ops_.size(), table);
  const bool same = seen == last_ && was_steady_ == steady_;
  last_ = std::move(seen);
  was_steady_ = steady_;
  if (same) make_segments(table);
}

void Replays::make_segments(Value* const* table) {
  // values of other kinds, such as selected rows, are not compared
  const auto is_compared = [&](int32_t index) {
    return index < 0 || table[index]->holds<Tensor>() || table[index]->holds<std::monostate>();
  };
  const auto can = [&](size_t op) {
    return steady_.test(static_cast<unsigned>(op)) &&
           !unrecordable_.test(static_cast<unsigned>(op)) &&
           llvm::all_of(ops_[op].inputs, is_compared) &&
           llvm::all_of(ops_[op].outputs, is_compared);
  };
  for (size_t first = 0; first < ops_.size();) {
    size_t end = first;
    while (end < ops_.size() && can(end)) ++end;
    if (end - first >= kFewestOps) {
      segment_of_[first] = static_cast<int32_t>(segments_.size());
      segments_.push_back(
          {first, end, look(first, end, table), written_integers(first, end, table), nullptr});
    }
    first = std::max(end, first + 1);
  }
}

std::vector<int32_t> Replays::written_integers(size_t first, size_t end,
                                               Value* const* table) const {
  std::vector<int32_t> written;
  for (size_t i = first; i < end; ++i) {
    for (const int32_t index : ops_[i].outputs) {
      const auto* const tensor = index < 0 ? nullptr : table[index]->get_if<Tensor>();
      if (tensor != nullptr && is_integer(tensor->dtype())) written.push_back(index);
    }
  }
  return written;
}

void Replays::drop() {
  recording_ = -1;
  segments_.clear();
  last_.clear();
  std::fill(segment_of_.begin(), segment_of_.end(), -1);
}

int64_t Replays::recorded_ops() const {
  int64_t count = 0;
  for (const Segment& segment : segments_) {
    if (segment.recording != nullptr) count += static_cast<int64_t>(segment.end - segment.first);
  }
  return count;
}

}  // namespace millrace::executor
