#include "executor/arena.h"

#include <algorithm>
#include <numeric>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <llvm/ADT/STLExtras.h>

#include "kernels/gpu/resident.h"

namespace millrace::executor {
namespace {

// Table entry of the first argument of a slot; -1 if there is none.
int32_t first_of(const Op& op, llvm::ArrayRef<Slot> slots, llvm::ArrayRef<int32_t> args,
                 llvm::StringRef name) {
  size_t i = 0;
  for (const Slot& slot : slots) {
    if (op.name_of(slot.name) == name) return slot.args.size() == 1 ? args[i] : -1;
    i += slot.args.size();
  }
  return -1;
}

// A run without a plan leaves its memory free but still held by the allocator, so the planned
// region would add to it. Returning it costs time, which does not pay for small regions.
void give_back_free_memory(int64_t planned_bytes) {
#ifdef __GLIBC__
  constexpr int64_t kWorthIt = int64_t{8} << 20U;
  if (planned_bytes >= kWorthIt) ::malloc_trim(0);
#endif
}

}  // namespace

Arena::Arena(llvm::ArrayRef<CompiledOp> compiled_ops, llvm::BitVector temporary, bool in_place)
    : temporary_(std::move(temporary)), uses_(temporary_.size()) {
  for (size_t s = 0; s < compiled_ops.size(); ++s) {
    for (const int32_t index : compiled_ops[s].inputs) {
      if (index < 0) continue;
      // read before it is written: it keeps a value between runs
      if (uses_[static_cast<size_t>(index)].first < 0)
        temporary_.reset(static_cast<unsigned>(index));
      uses_[static_cast<size_t>(index)].last = static_cast<int32_t>(s);
    }
    for (const int32_t index : compiled_ops[s].outputs) {
      if (index < 0) continue;
      Use& use = uses_[static_cast<size_t>(index)];
      if (use.first < 0) use.first = static_cast<int32_t>(s);
      use.last = static_cast<int32_t>(s);
    }
  }
  note_releases(compiled_ops.size());
  if (in_place) find_takeovers(compiled_ops);
}

void Arena::note_releases(size_t count) {
  release_from_.assign(count + 1, 0);
  for (const unsigned index : temporary_.set_bits()) {
    if (uses_[index].last < 0) continue;
    release_.push_back(static_cast<int32_t>(index));
    ++release_from_[static_cast<size_t>(uses_[index].last) + 1];
  }
  std::partial_sum(release_from_.begin(), release_from_.end(), release_from_.begin());
  std::stable_sort(release_.begin(), release_.end(), [this](int32_t a, int32_t b) {
    return uses_[static_cast<size_t>(a)].last < uses_[static_cast<size_t>(b)].last;
  });
}

void Arena::find_takeovers(llvm::ArrayRef<CompiledOp> compiled_ops) {
  std::vector<bool> taken(uses_.size(), false);
  for (size_t s = 0; s < compiled_ops.size(); ++s) {
    const CompiledOp& compiled = compiled_ops[s];
    for (const auto& [input, output] : compiled.def->inplace_pairs()) {
      const int32_t from = first_of(*compiled.op, compiled.op->inputs(), compiled.inputs, input);
      const int32_t to = first_of(*compiled.op, compiled.op->outputs(), compiled.outputs, output);
      if (from < 0 || to < 0 || from == to || taken[static_cast<size_t>(from)]) continue;
      // an input that the op also reads in another slot must be kept until the op is done
      if (std::count(compiled.inputs.begin(), compiled.inputs.end(), from) > 1) continue;
      const auto now = static_cast<int32_t>(s);
      Use& taker = uses_[static_cast<size_t>(to)];
      const Use& giver = uses_[static_cast<size_t>(from)];
      if (giver.last != now || giver.first == now || taker.first != now || taker.takes_over >= 0)
        continue;
      taker.takes_over = from;
      taken[static_cast<size_t>(from)] = true;
    }
  }
}

void Arena::keep(int32_t index, Value* const* table) {
  const auto bit = static_cast<unsigned>(index);
  if (bit >= temporary_.size() || !temporary_.test(bit)) return;
  if (buffer_ != nullptr) drop(table);
  temporary_.reset(bit);
}

void Arena::release(size_t op, Value* const* table) {
  const auto first = static_cast<size_t>(release_from_[op]);
  const auto end = static_cast<size_t>(release_from_[op + 1]);
  for (const int32_t index : llvm::ArrayRef(release_).slice(first, end - first)) {
    if (!temporary_.test(static_cast<unsigned>(index))) continue;
    auto* const tensor = table[index]->get_if<Tensor>();
    if (tensor == nullptr) continue;
    Use& use = uses_[static_cast<size_t>(index)];
    use.bytes = std::max(use.bytes, tensor->storage_bytes());
    use.resident = gpu::resident(*tensor) != nullptr;
    tensor->reset();
  }
}

bool Arena::has_place(unsigned index) const {
  const Use& use = uses_[index];
  return buffer_ != nullptr && temporary_.test(index) && !use.resident && use.range >= 0;
}

std::byte* Arena::place_of(unsigned index) const {
  return buffer_->data() + plan_.offsets[static_cast<size_t>(uses_[index].range)];
}

void Arena::forget(int32_t index, Tensor& tensor) {
  const auto bit = static_cast<unsigned>(index);
  if (bit < temporary_.size() && has_place(bit)) {
    tensor.bind(nullptr, place_of(bit), static_cast<size_t>(uses_[bit].bytes));
  } else {
    tensor.reset();
  }
}

void Arena::begin_run(Value* const* table) {
  if (guard_ == nullptr) return;
  for (const unsigned index : temporary_.set_bits()) {
    auto* const tensor = table[index]->get_if<Tensor>();
    if (tensor == nullptr || gpu::resident(*tensor) != nullptr) continue;
    forget(static_cast<int32_t>(index), *tensor);
  }
  if (buffer_ != nullptr) guard_->close({buffer_->data(), static_cast<size_t>(plan_.bytes)});
}

void Arena::guard_op(size_t op) {
  for (const unsigned index : temporary_.set_bits()) {
    if (has_place(index) && uses_[index].first == static_cast<int32_t>(op))
      guard_->open({place_of(index), static_cast<size_t>(uses_[index].bytes)});
  }
}

// True if a value that begins in the op reuses the space of one that ends there.
bool Arena::is_reused(unsigned index, int32_t op) const {
  for (const unsigned other : temporary_.set_bits()) {
    if (other != index && has_place(other) && place_of(other) == place_of(index) &&
        uses_[other].first == op && uses_[other].last > op)
      return true;
  }
  return false;
}

// Closes the memory of values last used in the op, unless a result has reused it.
Status Arena::check_op(size_t op, Value* const* table) {
  MILLRACE_RETURN_IF_ERROR(guard_->check());
  const auto now = static_cast<int32_t>(op);
  for (const unsigned index : temporary_.set_bits()) {
    if (!has_place(index) || uses_[index].last != now) continue;
    if (is_reused(index, now)) continue;
    if (auto* const tensor = table[index]->get_if<Tensor>())
      forget(static_cast<int32_t>(index), *tensor);
    guard_->close({place_of(index), static_cast<size_t>(uses_[index].bytes)});
  }
  return Ok();
}

void Arena::drop(Value* const* table) {
  for (const unsigned index : temporary_.set_bits()) {
    if (auto* const tensor = table[index]->get_if<Tensor>()) tensor->reset();
  }
  if (guard_ != nullptr) guard_->leave();
  buffer_.reset();
  plan_ = {};
  device_plan_ = {};
}

bool Arena::outgrown(Value* const* table) const {
  for (const unsigned index : temporary_.set_bits()) {
    const auto* const tensor = table[index]->get_if<Tensor>();
    if (tensor != nullptr && tensor->storage_bytes() > uses_[index].bytes) return true;
  }
  return false;
}

void Arena::note_sizes(Value* const* table) {
  for (const unsigned index : temporary_.set_bits()) {
    const auto* const tensor = table[index]->get_if<Tensor>();
    if (tensor == nullptr) continue;
    uses_[index].bytes = std::max(uses_[index].bytes, tensor->storage_bytes());
    uses_[index].resident = gpu::resident(*tensor) != nullptr;
  }
}

// Plans the temporaries that are in host memory, or those that are in device memory.
MemoryPlan Arena::plan_places(Value* const* table, bool resident) {
  std::vector<LiveRange> ranges;
  ranges.reserve(temporary_.count());
  for (const unsigned index : temporary_.set_bits()) {
    Use& use = uses_[index];
    if (use.resident != resident) continue;
    use.range = -1;
    if (use.first < 0 || table[index]->get_if<Tensor>() == nullptr) continue;
    use.range = static_cast<int32_t>(ranges.size());
    const int32_t last = until_.empty() ? use.last : until_[static_cast<size_t>(use.last)];
    ranges.push_back({use.first, last, use.bytes, -1});
  }
  for (const unsigned index : temporary_.set_bits()) {
    const Use& use = uses_[index];
    if (use.resident != resident || use.range < 0 || use.takes_over < 0) continue;
    const Use& giver = uses_[static_cast<size_t>(use.takes_over)];
    if (!temporary_.test(static_cast<unsigned>(use.takes_over)) || giver.resident != resident ||
        giver.range < 0 || giver.bytes < use.bytes)
      continue;
    ranges[static_cast<size_t>(use.range)].takes_over = giver.range;
    ranges[static_cast<size_t>(giver.range)].last = giver.last;
  }
  return plan_memory(ranges);
}

void Arena::bind_places(Value* const* table) {
  for (const unsigned index : temporary_.set_bits()) {
    const Use& use = uses_[index];
    if (use.resident || use.range < 0) continue;
    table[index]->get_if<Tensor>()->bind(
        nullptr, buffer_->data() + plan_.offsets[static_cast<size_t>(use.range)],
        static_cast<size_t>(use.bytes));
  }
}

// The tensors share ownership of the memory region.
Status Arena::bind_resident_places(Value* const* table) {
  if (device_plan_.bytes == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<gpu::Block> block,
                            device_memory_->allocate(device_plan_.bytes, "temporaries"));
  for (const unsigned index : temporary_.set_bits()) {
    const Use& use = uses_[index];
    if (!use.resident || use.range < 0) continue;
    MILLRACE_RETURN_IF_ERROR(
        gpu::reserve_resident(*table[index]->get_if<Tensor>(), block,
                              device_plan_.offsets[static_cast<size_t>(use.range)], use.bytes));
  }
  return Ok();
}

Status Arena::after_run(Value* const* table, bool shapes_changed) {
  if (buffer_ != nullptr) {
    if (!shapes_changed || !outgrown(table)) return Ok();
    note_sizes(table);
    drop(table);
  }
  plan_ = plan_places(table, /*resident=*/false);
  give_back_free_memory(plan_.bytes);
  MILLRACE_ASSIGN_OR_RETURN(buffer_, Buffer::allocate(static_cast<size_t>(plan_.bytes)));
  bind_places(table);
  if (guard_ != nullptr) guard_->watch({buffer_->data(), static_cast<size_t>(plan_.bytes)});
  if (device_memory_ == nullptr) return Ok();
  device_plan_ = plan_places(table, /*resident=*/true);
  return bind_resident_places(table);
}

int64_t Arena::offset(int32_t index) const {
  if (buffer_ == nullptr) return -1;
  const Use& use = uses_[static_cast<size_t>(index)];
  if (use.range < 0) return -1;
  return (use.resident ? device_plan_ : plan_).offsets[static_cast<size_t>(use.range)];
}

}  // namespace millrace::executor
