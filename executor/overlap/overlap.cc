#include "executor/overlap/overlap.h"

#include <algorithm>
#include <map>

#include "framework/tensor/layout.h"
#include "kernels/cpu/layouts.h"

namespace millrace::executor {
namespace {

// Number of ops for which memory that is not needed any more is kept: a larger number lets ops
// run further ahead but takes more memory.
constexpr int32_t kHold = 8;
// How often the arguments of a group may have moved since they were recorded.
constexpr int kMostNotes = 8;

// A value that must be unchanged for the recorded dependencies to hold.
struct Seen {
  int32_t index = 0;     // in the table
  bool is_read = false;  // read before the group writes it; for others only the address is compared
  const void* data = nullptr;
  kernels::LayoutPtr layout;
  Dims dims;
  Lod lod;

  [[nodiscard]] bool is_still(const Value& value) const {
    const auto* const tensor = value.get_if<Tensor>();
    if (tensor == nullptr) return data == nullptr;
    if (tensor->raw() != data) return false;
    return !is_read || (kernels::same_order(tensor->layout(), layout) && tensor->lod() == lod &&
                        tensor->dims() == llvm::ArrayRef<int64_t>(dims));
  }
};

Seen see(int32_t index, bool is_read, const Value& value) {
  Seen seen;
  seen.index = index;
  seen.is_read = is_read;
  if (const auto* const tensor = value.get_if<Tensor>()) {
    seen.data = tensor->raw();
    seen.layout = tensor->layout();
    seen.dims.assign(tensor->dims().begin(), tensor->dims().end());
    seen.lod = tensor->lod();
  }
  return seen;
}

// Adds the bytes of a value and the value object itself, which also has dims and layout. Value
// objects are represented by negative numbers, which are no memory addresses.
void add_accesses(int32_t index, const Value& value, bool writes, std::vector<Access>& to) {
  to.push_back({-1 - index, -index, writes});
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || tensor->raw() == nullptr) return;
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor->raw()));
  to.push_back({begin, begin + std::max<int64_t>(tensor->storage_bytes(), 1), writes});
}

// Visits all values that an op uses, including the spares of shared inputs.
template <typename Visit>
void for_each_argument(const CompiledOp& compiled, Visit visit) {
  for (const int32_t index : compiled.inputs)
    if (index >= 0) visit(index, false);
  for (const int32_t index : compiled.outputs)
    if (index >= 0) visit(index, true);
  for (const CompiledOp::Shared& shared : compiled.shared) visit(shared.spare, true);
}

std::vector<std::vector<Access>> named_accesses(llvm::ArrayRef<CompiledOp> compiled_ops) {
  std::vector<std::vector<Access>> result(compiled_ops.size());
  for (size_t s = 0; s < compiled_ops.size(); ++s) {
    for_each_argument(compiled_ops[s], [&](int32_t index, bool writes) {
      result[s].push_back({index, index + 1, writes});
    });
  }
  return result;
}

}  // namespace

struct Overlap::Prepared {
  std::vector<Seen> seen;        // before the group has run
  std::unique_ptr<Lanes> lanes;  // null: not recorded yet
  int notes = 0;

  [[nodiscard]] bool fits(Value* const* table) const {
    return lanes != nullptr && std::all_of(seen.begin(), seen.end(), [table](const Seen& each) {
             return each.is_still(*table[each.index]);
           });
  }
};

Overlap::Overlap(int threads) {
  for (int i = 0; i < threads; ++i) devices_.push_back(std::make_unique<kernels::CpuDevice>(1));
}
Overlap::~Overlap() = default;

void Overlap::choose(llvm::ArrayRef<CompiledOp> compiled_ops, llvm::ArrayRef<OpWork> work) {
  has_chosen_ = true;
  groups_ = choose_groups(work, find_dependencies(named_accesses(compiled_ops)),
                          static_cast<int>(devices_.size()));
  if (groups_.empty()) return;
  group_of_.assign(compiled_ops.size(), -1);
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::fill(group_of_.begin() + groups_[g].first, group_of_.begin() + groups_[g].end,
              static_cast<int32_t>(g));
    prepared_.push_back(std::make_unique<Prepared>());
  }
}

std::vector<int32_t> Overlap::holds() const {
  std::vector<int32_t> result(group_of_.size());
  for (size_t s = 0; s < result.size(); ++s) {
    const auto compiled = static_cast<int32_t>(s);
    const int32_t group = group_of_[s];
    result[s] = group < 0 ? compiled
                          : std::min(compiled + kHold, groups_[static_cast<size_t>(group)].end - 1);
  }
  return result;
}

bool Overlap::is_useless() const {
  return groups_.empty() ||
         std::any_of(prepared_.begin(), prepared_.end(),
                     [](const auto& prepared) { return prepared->notes > kMostNotes; });
}

Status Overlap::run(size_t group, llvm::ArrayRef<CompiledOp> compiled_ops, Value* const* table,
                    kernels::CpuDevice& all, bool memory_planned, RunOp run_op) {
  const Group& range = groups_[group];
  if (!memory_planned) return run_in_turn(range, run_op);
  Prepared& prepared = *prepared_[group];
  if (!prepared.fits(table)) return note(group, compiled_ops, table, run_op);
  return prepared.lanes->run(all, static_cast<int>(devices_.size()),
                             [&](int lane, size_t compiled) {
                               return run_op(static_cast<size_t>(range.first) + compiled,
                                             *devices_[static_cast<size_t>(lane)]);
                             });
}

Status Overlap::run_in_turn(const Group& group, RunOp run_op) {
  for (int32_t s = group.first; s < group.end; ++s)
    MILLRACE_RETURN_IF_ERROR(run_op(static_cast<size_t>(s), device()));
  return Ok();
}

// Runs the ops in order and records what each of them reads and writes.
Status Overlap::note(size_t group, llvm::ArrayRef<CompiledOp> compiled_ops, Value* const* table,
                     RunOp run_op) {
  const Group& range = groups_[group];
  Prepared& prepared = *prepared_[group];
  ++prepared.notes;
  prepared.lanes.reset();
  prepared.seen.clear();
  std::map<int32_t, Seen> before;
  for (int32_t s = range.first; s < range.end; ++s) {
    for_each_argument(compiled_ops[static_cast<size_t>(s)], [&](int32_t index, bool writes) {
      before.try_emplace(index, see(index, !writes, *table[index]));
    });
  }
  for (auto& [index, seen] : before) prepared.seen.push_back(std::move(seen));

  std::vector<std::vector<Access>> accesses;
  for (int32_t s = range.first; s < range.end; ++s) {
    const CompiledOp& compiled = compiled_ops[static_cast<size_t>(s)];
    std::vector<Access> of_op;
    std::vector<Seen> inputs;
    for_each_argument(compiled, [&](int32_t index, bool writes) {
      add_accesses(index, *table[index], writes, of_op);
      if (!writes) inputs.push_back(see(index, /*is_read=*/true, *table[index]));
    });
    MILLRACE_RETURN_IF_ERROR(run_op(static_cast<size_t>(s), device()));
    for_each_argument(compiled, [&](int32_t index, bool writes) {
      if (writes) add_accesses(index, *table[index], /*writes=*/true, of_op);
    });
    // a kernel may convert an input to another layout
    for (const Seen& input : inputs) {
      if (!input.is_still(*table[input.index]))
        add_accesses(input.index, *table[input.index], /*writes=*/true, of_op);
    }
    accesses.push_back(std::move(of_op));
  }
  prepared.lanes = std::make_unique<Lanes>(find_dependencies(accesses));
  return Ok();
}

}  // namespace millrace::executor
