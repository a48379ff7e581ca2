#include "executor/gpu/gpu_ops.h"

#include <deque>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "executor/collective/rings.h"
#include "framework/block.h"
#include "framework/tensor/layout.h"
#include "kernels/gpu/ops/halves.h"
#include "kernels/gpu/resident.h"

namespace millrace::executor {
namespace {

void note_names(const Op& op, llvm::ArrayRef<Slot> slots, llvm::ArrayRef<int32_t> indices,
                std::vector<llvm::StringRef>& names) {
  size_t i = 0;
  for (const Slot& slot : slots) {
    for (const Arg& arg : slot.args) {
      const int32_t index = indices[i++];
      if (index < 0) continue;
      const auto at = static_cast<size_t>(index);
      if (at >= names.size()) names.resize(at + 1);
      names[at] = op.name_of(arg.name);
    }
  }
}

// The tensor of a value that can be in device memory: itself, or the values of selected rows.
Tensor* movable_part(Value& value) {
  if (auto* const rows = value.get_if<SelectedRows>()) return &rows->value;
  return value.get_if<Tensor>();
}

bool is_resident(Value& value) {
  const Tensor* const tensor = movable_part(value);
  return tensor != nullptr && gpu::resident(*tensor) != nullptr;
}

// True if an element of an array is in device memory.
bool has_resident_element(const Value& value) {
  const auto* const array = value.get_if<TensorArray>();
  return array != nullptr && llvm::any_of(*array, [](const Tensor& element) {
           return gpu::resident(element) != nullptr;
         });
}

// Moves what a value has in device memory to process memory.
Status bring_here(Value& value) {
  if (Tensor* const tensor = movable_part(value)) return make_plain(*tensor);
  if (auto* const array = value.get_if<TensorArray>()) {
    for (Tensor& element : *array) MILLRACE_RETURN_IF_ERROR(make_plain(element));
  }
  return Ok();
}

// A copy whose elements are in process memory.
Status copy_here(const Value& value, Value& copy) {
  if (value.holds<TensorArray>()) {
    MILLRACE_ASSIGN_OR_RETURN(copy, clone(value));
    return Ok();
  }
  const auto* const rows = value.get_if<SelectedRows>();
  if (rows == nullptr) return copy_plain(*value.get_if<Tensor>(), copy.as<Tensor>());
  auto& to = copy.as<SelectedRows>();
  to.rows = rows->rows;
  to.height = rows->height;
  return copy_plain(rows->value, to.value);
}

// Moves back the values that prepare_outputs() moved to spares, because the op will run again.
void undo_moves(const CompiledOp& compiled, Value* const* table) {
  for (const CompiledOp::Shared& shared : compiled.shared) {
    Value& spare = *table[shared.spare];
    if (!spare.initialized()) continue;
    std::swap(*table[compiled.inputs[shared.input]], spare);
    spare.clear();
  }
}

void clear_spares(const CompiledOp& compiled, Value* const* table) {
  for (const CompiledOp::Shared& shared : compiled.shared) table[shared.spare]->clear();
}

// Kernels that read the device that a value is on (executor/parallel/exchange_kernels.h). Values of
// an exchange must not be copied: it ends in another op than it begins.
bool is_exchange(const Op& op) {
  return op.type() == "exchange_begin" || op.type() == "exchange_end";
}

// Ops that have GPU kernels for arrays.
bool takes_arrays(const Op& op) {
  return op.type() == "write_to_array" || op.type() == "read_from_array";
}

gpu::Traffic difference(const gpu::Traffic& now, const gpu::Traffic& before) {
  return {now.copies_in - before.copies_in, now.bytes_in - before.bytes_in,
          now.copies_out - before.copies_out, now.bytes_out - before.bytes_out};
}

}  // namespace

GpuOps::GpuOps(std::shared_ptr<gpu::Context> context, llvm::ArrayRef<CompiledOp> compiled_ops,
               kernels::CpuDevice& device, const ops::OpRegistry& schemas,
               const ControlNumbers& numbers)
    : context_(std::move(context)),
      placed_(compiled_ops.size()),
      is_control_(compiled_ops.size()),
      received_(context_),
      computed_(context_),
      replays_(context_->device(), compiled_ops) {
  for (size_t i = 0; i < compiled_ops.size(); ++i) {
    const CompiledOp& compiled = compiled_ops[i];
    is_control_[i] = compiled.control != nullptr;
    note_names(*compiled.op, compiled.op->inputs(), compiled.inputs, names_);
    note_names(*compiled.op, compiled.op->outputs(), compiled.outputs, names_);
    if (is_control_[i]) continue;
    if (is_exchange(*compiled.op)) {
      placed_[i].is_exchange = true;
      placed_[i].reason = "exchanges values between devices";
      continue;
    }
    if (numbers.contains(*compiled.op)) {
      placed_[i].is_number = true;
      placed_[i].reason = "control flow reads the number";
      continue;
    }
    const kernels::KernelMaker maker = context_->kernels().find(compiled.op->type());
    if (maker == nullptr) {
      placed_[i].reason = "there is no GPU kernel";
      continue;
    }
    const kernels::KernelSetup setup(*compiled.def, *compiled.op, device, schemas);
    StatusOr<kernels::Kernel> kernel = maker(setup);
    if (kernel.ok()) {
      placed_[i].kernel = gpu::also_for_halves(setup, *std::move(kernel));
    } else {
      placed_[i].reason = kernel.status().message();
    }
  }
}

GpuOps::Counts GpuOps::counts() const {
  Counts counts;
  for (size_t i = 0; i < placed_.size(); ++i) {
    if (!is_control_[i] && !placed_[i].is_exchange && !placed_[i].is_number)
      ++(placed_[i].kernel ? counts.on_gpu : counts.on_cpu);
  }
  return counts;
}

std::string GpuOps::summary() const {
  const Counts ops = counts();
  const gpu::Traffic& traffic = context_->memory().traffic();
  return fmt::format(
      "{} ops on the gpu, {} of them recorded, {} on the cpu; copied {} to the gpu ({} bytes), "
      "{} from it ({} bytes); peak {} bytes of its memory",
      ops.on_gpu, replays_.recorded_ops(), ops.on_cpu, traffic.copies_in, traffic.bytes_in,
      traffic.copies_out, traffic.bytes_out, context_->memory().peak_bytes());
}

Status GpuOps::run(size_t index, CompiledOp& compiled, llvm::ArrayRef<Value*> table,
                   kernels::CpuDevice& device, bool watched, bool& changed) {
  Placed& placed = placed_[index];
  const gpu::Traffic before = context_->memory().traffic();
  const int64_t allocations = context_->memory().allocations();
  Status status;
  if (placed.kernel) {
    status = run_on_gpu(placed, compiled, table.data(), device, changed);
    if (status.code() == StatusCode::kUnimplemented) {
      placed.reason = status.message();
      placed.kernel = nullptr;
    }
  }
  if (placed.is_exchange) {
    status = run_exchange(compiled, table.data(), device, changed);
  } else if (!placed.kernel) {
    status = run_on_cpu(compiled, table, device, changed);
  }
  if (status.ok() && watched) status = context_->device().wait();
  placed.copied = difference(context_->memory().traffic(), before);
  placed.steady = !context_->device().take_unrepeatable() && placed.copied.copies_in == 0 &&
                  placed.copied.copies_out == 0 && context_->memory().allocations() == allocations;
  return status;
}

Status GpuOps::run_on_gpu(const Placed& placed, CompiledOp& compiled, Value* const* table,
                          kernels::CpuDevice& device, bool& changed) {
  for (const int32_t index : compiled.inputs) {
    if (index < 0 || table[index]->holds<std::monostate>() ||
        movable_part(*table[index]) != nullptr ||
        (table[index]->holds<TensorArray>() && takes_arrays(*compiled.op)))
      continue;
    return {StatusCode::kUnimplemented,
            fmt::format("the GPU kernel expects tensors, found {}", describe(*table[index]))};
  }
  gpu::Memory& memory = context_->memory();
  for (const int32_t index : compiled.inputs) {
    auto* const tensor = index < 0 ? nullptr : movable_part(*table[index]);
    if (tensor == nullptr || !tensor->initialized()) continue;
    MILLRACE_RETURN_IF_ERROR(computed_.settle(*table[index]));
    MILLRACE_RETURN_IF_ERROR(gpu::move_in(*tensor, memory, names_[static_cast<size_t>(index)]));
  }
  const auto size = [&](int32_t index, Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims) {
    return gpu::resize_resident(tensor, dtype, dims, memory, names_[static_cast<size_t>(index)]);
  };
  MILLRACE_ASSIGN_OR_RETURN(const bool apart, prepare_outputs(compiled, table, changed, size));
  for (const int32_t index : compiled.outputs) {
    const auto* const tensor = index < 0 ? nullptr : table[index]->get_if<Tensor>();
    if (tensor != nullptr) gpu::forget_host(*tensor);
  }
  const kernels::KernelContext ctx(
      table, apart ? llvm::ArrayRef<int32_t>(compiled.inputs_apart) : compiled.inputs,
      compiled.outputs, device);
  Status status = placed.kernel(ctx);
  if (apart && status.code() == StatusCode::kUnimplemented) {
    undo_moves(compiled, table);
  } else if (apart) {
    clear_spares(compiled, table);
  }
  return status;
}

Status GpuOps::run_exchange(CompiledOp& compiled, Value* const* table, kernels::CpuDevice& device,
                            bool& changed) {
  MILLRACE_RETURN_IF_ERROR(prepare_outputs(compiled, table, changed).status());
  return compiled.kernel({table, compiled.inputs, compiled.outputs, device});
}

bool GpuOps::is_transfer(const Op& op) {
  static constexpr const char* kTypes[] = {"send",
                                           "recv",
                                           "send_barrier",
                                           "fetch_barrier",
                                           "send_and_recv",
                                           "prefetch",
                                           "distributed_lookup_table",
                                           "distributed_push_sparse"};
  return llvm::is_contained(kTypes, op.type()) || exchanges_with_ranks(op.type());
}

Status GpuOps::run_transfer(const CompiledOp& compiled, llvm::ArrayRef<Value*> table,
                            llvm::function_ref<Status(Value* const* table)> run) {
  table_.assign(table.begin(), table.end());
  for (const int32_t index : compiled.outputs) {
    if (index >= 0)
      received_.note(*table[static_cast<size_t>(index)], names_[static_cast<size_t>(index)].str());
  }
  for (const uint16_t position : compiled.lists.plain()) {
    const int32_t index = compiled.inputs[position];
    Value& value = *table[static_cast<size_t>(index)];
    if (!is_resident(value)) continue;
    if (llvm::is_contained(compiled.outputs, index)) {
      MILLRACE_RETURN_IF_ERROR(make_plain(*movable_part(value)));
      continue;
    }
    std::unique_ptr<Value>& copy = sent_[index];
    if (copy == nullptr) copy = std::make_unique<Value>();
    MILLRACE_RETURN_IF_ERROR(copy_here(value, *copy));
    table_[static_cast<size_t>(index)] = copy.get();
  }
  MILLRACE_RETURN_IF_ERROR(run(table_.data()));
  return received_.settle();
}

Status GpuOps::run_on_cpu(CompiledOp& compiled, llvm::ArrayRef<Value*> table,
                          kernels::CpuDevice& device, bool& changed) {
  table_.assign(table.begin(), table.end());
  for (const int32_t index : compiled.outputs) {
    if (index < 0) continue;
    const auto at = static_cast<size_t>(index);
    computed_.note(*table[at], names_[at].str());
  }
  std::deque<Value> copies;  // as long as the op runs
  for (const int32_t index : compiled.inputs) {
    if (index < 0 || table_[static_cast<size_t>(index)] != table[static_cast<size_t>(index)])
      continue;
    Value& value = *table[static_cast<size_t>(index)];
    if (!is_resident(value) && !has_resident_element(value)) continue;
    if (llvm::is_contained(compiled.outputs, index)) {
      MILLRACE_RETURN_IF_ERROR(bring_here(value));
      continue;
    }
    Value& copy = copies.emplace_back();
    MILLRACE_RETURN_IF_ERROR(copy_here(value, copy));
    table_[static_cast<size_t>(index)] = &copy;
  }
  Value* const* const values = table_.data();
  // kernels size the values of rows themselves, and keep memory that fits
  for (const int32_t index : compiled.outputs) {
    auto* const rows = index < 0 ? nullptr : values[index]->get_if<SelectedRows>();
    if (rows != nullptr && gpu::resident(rows->value) != nullptr &&
        !llvm::is_contained(compiled.inputs, index))
      rows->value.reset();
  }
  MILLRACE_RETURN_IF_ERROR(make_inputs_plain(compiled, values, device));
  MILLRACE_ASSIGN_OR_RETURN(const bool apart, prepare_outputs(compiled, values, changed));
  const kernels::KernelContext ctx(
      values, apart ? llvm::ArrayRef<int32_t>(compiled.inputs_apart) : compiled.inputs,
      compiled.outputs, device);
  MILLRACE_RETURN_IF_ERROR(compiled.kernel(ctx));
  if (apart) clear_spares(compiled, values);
  return Ok();
}

}  // namespace millrace::executor
