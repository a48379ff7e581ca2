#include "executor/compiled_ops/compiled_op.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>

#include "executor/compiled_ops/memory_guard.h"
#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/program.h"
#include "kernels/cpu/layouts.h"

namespace millrace::executor {
namespace {

using ops::VarMeta;

// Shape inference over the values of one op.
class OpInfer final : public ops::InferContext {
 public:
  OpInfer(const CompiledOp& compiled, Value* const* table)
      : InferContext(*compiled.def, *compiled.op), metas_(compiled.inputs.size()) {
    size_t i = 0;
    for (const Slot& slot : compiled.op->inputs()) {
      for (const Arg& arg : slot.args) {
        if (compiled.inputs[i] >= 0) {
          metas_[i].name = arg.name;
          metas_[i].present = true;
          metas_[i].meta = meta_of_value(*table[compiled.inputs[i]]);
        }
        ++i;
      }
    }
    unknown_.has_shape = false;
  }

  std::vector<std::pair<NameId, VarMeta>>& results() { return results_; }

 protected:
  const VarMeta& meta(NameId name) const override {
    for (const Known& known : metas_) {
      if (known.present && known.name == name) return known.meta;
    }
    return unknown_;
  }
  void set_meta(NameId name, VarMeta meta) override {
    results_.emplace_back(name, std::move(meta));
  }

 private:
  struct Known {
    NameId name{};
    bool present = false;
    VarMeta meta;
  };
  std::vector<Known> metas_;
  VarMeta unknown_;
  std::vector<std::pair<NameId, VarMeta>> results_;
};

bool same_inputs(const CompiledOp& compiled, Value* const* table) {
  for (size_t i = 0; i < compiled.inputs.size(); ++i) {
    if (compiled.inputs[i] < 0) continue;
    const CompiledOp::Seen& seen = compiled.seen[i];
    const Value& value = *table[compiled.inputs[i]];
    if (value.holds<std::monostate>()) {
      if (seen.kind != value.kind() || !seen.dims.empty()) return false;
    } else if (const auto* const tensor = value.get_if<Tensor>()) {
      if (!tensor->initialized() || seen.kind != VarKind::kLodTensor ||
          seen.dtype != tensor->dtype() || tensor->dims() != llvm::ArrayRef<int64_t>(seen.dims) ||
          !(seen.lod == tensor->lod()))
        return false;
    } else {
      return false;  // rows and arrays change between runs
    }
  }
  return true;
}

void remember_inputs(CompiledOp& compiled, Value* const* table) {
  compiled.seen.resize(compiled.inputs.size());
  for (size_t i = 0; i < compiled.inputs.size(); ++i) {
    if (compiled.inputs[i] < 0) continue;
    VarMeta meta = meta_of_value(*table[compiled.inputs[i]]);
    compiled.seen[i] = {meta.dtype, meta.kind, std::move(meta.dims), std::move(meta.lod)};
  }
}

void add_result(CompiledOp& compiled, uint16_t output, VarMeta meta) {
  CompiledOp::Result result;
  result.output = output;
  result.is_also_input = llvm::any_of(
      compiled.shared, [&](const CompiledOp::Shared& shared) { return shared.output == output; });
  result.dtype = meta.dtype;
  result.sized = meta.has_shape &&
                 std::all_of(meta.dims.begin(), meta.dims.end(), [](int64_t d) { return d >= 0; });
  result.dims = std::move(meta.dims);
  result.lod = std::move(meta.lod);
  compiled.results.push_back(std::move(result));
}

// True for dense outputs; kernels create selected rows and arrays.
bool is_dense(const CompiledOp& compiled, NameId name, const VarMeta& meta) {
  if (meta.kind != VarKind::kLodTensor) return false;
  const Var* const var = compiled.op->block().find_var_recursive(compiled.op->name_of(name));
  return var == nullptr ||
         (var->kind() != VarKind::kSelectedRows && var->kind() != VarKind::kLodTensorArray);
}

// Kernels produce selected rows or arrays from other such values, or if inference says so.
Status check_declared_kind(const CompiledOp& compiled, Value* const* table, llvm::StringRef slot,
                           NameId name, const VarMeta& meta) {
  const Var* const var = compiled.op->block().find_var_recursive(compiled.op->name_of(name));
  if (meta.kind != VarKind::kLodTensor || var == nullptr) return Ok();
  if (var->kind() != VarKind::kSelectedRows && var->kind() != VarKind::kLodTensorArray) return Ok();
  const bool rows = var->kind() == VarKind::kSelectedRows;
  const bool may = llvm::any_of(compiled.inputs, [&](int32_t index) {
    return index >= 0 && (rows ? table[index]->holds<SelectedRows>()
                               : table[index]->initialized() && !table[index]->holds<Tensor>());
  });
  if (may) return Ok();
  Location place;
  place.slot = slot.str();
  place.slot_index = 0;
  place.var = compiled.op->name_of(name).str();
  return Status(StatusCode::kExecution,
                fmt::format("the op makes a dense tensor, but the var is declared as {}",
                            rows ? "selected rows" : "an array"))
      .at(place);
}

// Location of an input or output in the op, for messages.
Location place_of(const CompiledOp& compiled, uint16_t position, bool is_output = false) {
  Location place;
  size_t i = 0;
  for (const Slot& slot : is_output ? compiled.op->outputs() : compiled.op->inputs()) {
    for (size_t k = 0; k < slot.args.size(); ++k, ++i) {
      if (i != position) continue;
      place.slot = compiled.op->name_of(slot.name).str();
      place.slot_index = static_cast<int>(k);
      place.var = compiled.op->name_of(slot.args[k].name).str();
    }
  }
  return place;
}

// A kernel that needs a tensor must get one. Checked only when an input changed; inputs that are
// not tensors always count as changed.
Status check_kinds(const CompiledOp& compiled, Value* const* table) {
  const auto* rule = compiled.kinds.begin();
  const auto count = static_cast<uint16_t>(compiled.inputs.size());
  for (uint16_t position = 0; position < count; ++position) {
    kernels::AcceptedKinds accepted;
    if (rule != compiled.kinds.end() && rule->position == position) accepted = (rule++)->accepted;
    if (compiled.inputs[position] < 0) continue;
    const Value& value = *table[compiled.inputs[position]];
    if (value.holds<Tensor>() || value.holds<std::monostate>() || accepted.others ||
        (accepted.rows && value.holds<SelectedRows>()) ||
        (accepted.arrays && value.holds<TensorArray>()))
      continue;
    return Status(StatusCode::kExecution,
                  fmt::format("the input must be a dense tensor{}{}, found {}",
                              accepted.rows ? " or selected rows" : "",
                              accepted.arrays ? " or an array" : "", describe(value)))
        .at(place_of(compiled, position));
  }
  const auto is_there = [&](uint16_t position) {
    return table[compiled.inputs[position]]->initialized();
  };
  if (compiled.lists.incoming().empty() || llvm::any_of(compiled.lists.incoming(), is_there))
    return Ok();
  return Status(StatusCode::kExecution, "the incoming gradient holds no value")
      .at(place_of(compiled, compiled.lists.incoming().front()))
      .with_hint("the op that computes it has not run, or its var is overwritten or deleted");
}

// A tensor that was never resized does not count as a tensor for kernels: optional inputs of that
// kind are treated as absent. Such a tensor counts as changed, so that it is handled here.
void drop_empty_inputs(const CompiledOp& compiled, Value* const* table) {
  for (const int32_t index : compiled.inputs) {
    const auto* const tensor = index < 0 ? nullptr : table[index]->get_if<Tensor>();
    if (tensor != nullptr && !tensor->initialized()) *table[index] = Value();
  }
}

Status infer(CompiledOp& compiled, Value* const* table) {
  drop_empty_inputs(compiled, table);
  MILLRACE_RETURN_IF_ERROR(check_kinds(compiled, table));
  compiled.results.clear();
  compiled.inferred = false;
  if (compiled.def->infer_fn() != nullptr) {
    OpInfer ctx(compiled, table);
    MILLRACE_RETURN_IF_ERROR(compiled.def->infer_fn()(ctx));
    for (auto& [name, meta] : ctx.results()) {
      const bool dense = is_dense(compiled, name, meta);
      uint16_t position = 0;
      for (const Slot& slot : compiled.op->outputs()) {
        for (const Arg& arg : slot.args) {
          if (arg.name == name && compiled.outputs[position] >= 0 && !dense) {
            MILLRACE_RETURN_IF_ERROR(
                check_declared_kind(compiled, table, compiled.op->name_of(slot.name), name, meta));
          } else if (arg.name == name && compiled.outputs[position] >= 0) {
            add_result(compiled, position, meta);
          }
          ++position;
        }
      }
    }
  }
  compiled.unknown.clear();
  compiled.forgotten.clear();
  for (size_t i = 0; i < compiled.outputs.size(); ++i) {
    const bool is_known = std::any_of(
        compiled.results.begin(), compiled.results.end(),
        [i](const CompiledOp::Result& result) { return result.output == i && result.sized; });
    if (compiled.outputs[i] < 0 || is_known) continue;
    compiled.unknown.push_back(compiled.outputs[i]);
    if (llvm::is_contained(compiled.begun, compiled.outputs[i]))
      compiled.forgotten.push_back(compiled.outputs[i]);
  }
  remember_inputs(compiled, table);
  compiled.inferred = true;
  return Ok();
}

// True if giving a value the kind, type and dims of the output keeps its content.
bool keeps_content(const Value& value, const CompiledOp::Result& result) {
  const auto* const tensor = value.get_if<Tensor>();
  return tensor == nullptr ? value.holds<std::monostate>()
                           : result.sized && tensor->dtype() == result.dtype &&
                                 tensor->dims() == llvm::ArrayRef<int64_t>(result.dims);
}

// Moves the content of an input to its spare if setting the kind, type and dims of the output, or
// writing it, would lose it.
bool move_apart(CompiledOp& compiled, Value* const* table) {
  // checked at every op, even for ops with hundreds of inputs that are also outputs
  const bool all_stay = llvm::all_of(compiled.results, [&](const CompiledOp::Result& result) {
    return !result.is_also_input || keeps_content(*table[compiled.outputs[result.output]], result);
  });
  const auto is_apart = [](const CompiledOp::Shared& shared) { return shared.always_apart; };
  if (all_stay && llvm::none_of(compiled.shared, is_apart)) return false;
  compiled.inputs_apart.assign(compiled.inputs.begin(), compiled.inputs.end());
  for (const CompiledOp::Shared& shared : compiled.shared) {
    const int32_t index = compiled.inputs[shared.input];
    Value& value = *table[index];
    const bool moves = shared.always_apart ||
                       llvm::any_of(compiled.results, [&](const CompiledOp::Result& result) {
                         return result.output == shared.output && !keeps_content(value, result);
                       });
    // inputs that stay where they are need no spare, and those of one var have the same one
    if (!moves || !value.initialized()) continue;
    std::swap(value, *table[shared.spare]);
    std::replace(compiled.inputs_apart.begin(), compiled.inputs_apart.end(), index, shared.spare);
  }
  return true;
}

// True if the output is also an input and keeps type and dims: the kernel finds its input there, in
// a layout that it accepts.
bool stays_in_layout(const CompiledOp::Result& result, const Tensor& tensor) {
  return result.is_also_input && tensor.initialized() && tensor.dtype() == result.dtype &&
         tensor.dims() == llvm::ArrayRef<int64_t>(result.dims);
}

// Outputs about which inference says nothing also start in row-major order.
Status drop_layouts(const CompiledOp& compiled, Value* const* table) {
  for (const int32_t index : compiled.unknown) {
    auto* const tensor = table[index]->get_if<Tensor>();
    if (tensor == nullptr || tensor->layout() == nullptr) continue;
    const bool is_input =
        std::find(compiled.inputs.begin(), compiled.inputs.end(), index) != compiled.inputs.end();
    if (is_input) continue;
    const Dims dims(tensor->dims().begin(), tensor->dims().end());
    MILLRACE_RETURN_IF_ERROR(tensor->resize(tensor->dtype(), dims));
  }
  return Ok();
}

// A tensor that was given memory but no dims yet looks like a scalar without its element.
bool is_sized(const Tensor& tensor, const CompiledOp::Result& result) {
  return tensor.initialized() && tensor.layout() == nullptr && tensor.dtype() == result.dtype &&
         tensor.dims() == llvm::ArrayRef<int64_t>(result.dims) &&
         (tensor.rank() > 0 || tensor.numel() == 1);
}

}  // namespace

ops::VarMeta meta_of_value(const Value& value) {
  VarMeta meta;
  meta.kind = value.kind();
  meta.has_shape = false;
  if (const auto* const tensor = value.get_if<Tensor>()) {
    meta.has_shape = tensor->initialized();
    meta.dtype = tensor->dtype();
    meta.dims.assign(tensor->dims().begin(), tensor->dims().end());
    meta.lod = tensor->lod();
  } else if (const auto* const rows = value.get_if<SelectedRows>()) {
    meta.has_shape = rows->value.initialized();
    meta.dtype = rows->value.dtype();
    meta.dims.assign(rows->value.dims().begin(), rows->value.dims().end());
    if (!meta.dims.empty()) meta.dims[0] = rows->height;
  } else if (const auto* const array = value.get_if<TensorArray>()) {
    if (!array->empty() && array->front().initialized()) {
      meta.dtype = array->front().dtype();
      meta.has_shape = true;
      meta.dims.assign(array->front().dims().begin(), array->front().dims().end());
      for (int64_t& dim : meta.dims) dim = -1;
    }
  }
  meta.lod_level = static_cast<int32_t>(meta.lod.size());
  return meta;
}

StatusOr<bool> prepare_outputs(CompiledOp& compiled, Value* const* table, bool& changed,
                               SizeOutput size, ForgetOutput forget) {
  if (!compiled.inferred || !same_inputs(compiled, table)) {
    changed = true;
    MILLRACE_RETURN_IF_ERROR(infer(compiled, table));
  }
  const bool apart = !compiled.shared.empty() && move_apart(compiled, table);
  // the kernel sees the same content as in a first run, so that all runs give equal results
  for (const int32_t index : compiled.forgotten) {
    auto* const tensor = table[index]->get_if<Tensor>();
    if (tensor == nullptr) continue;
    forget ? forget(index, *tensor) : tensor->reset();
  }
  for (const CompiledOp::Result& result : compiled.results) {
    const int32_t index = compiled.outputs[result.output];
    auto& tensor = table[index]->as<Tensor>();
    Status status;
    if (result.sized && size) {
      if (!stays_in_layout(result, tensor)) status = size(index, tensor, result.dtype, result.dims);
    } else if (result.sized && !is_sized(tensor, result) &&
               (tensor.layout() == nullptr || !stays_in_layout(result, tensor))) {
      status = tensor.resize(result.dtype, result.dims);
    }
    if (!status.ok())
      return std::move(status).at(place_of(compiled, result.output, /*is_output=*/true));
    if (!tensor.lod().empty() || !result.lod.empty()) tensor.set_lod(result.lod);
  }
  if (!compiled.unknown.empty()) MILLRACE_RETURN_IF_ERROR(drop_layouts(compiled, table));
  return apart;
}

namespace {

using MemoryRange = std::pair<const std::byte*, const std::byte*>;

void add_range(const Tensor& tensor, std::vector<MemoryRange>& ranges) {
  if (tensor.initialized())
    ranges.emplace_back(tensor.raw(), tensor.raw() + tensor.storage_bytes());
}

std::vector<MemoryRange> input_memory(const CompiledOp& compiled, Value* const* table) {
  std::vector<MemoryRange> ranges;
  const auto add = [&](int32_t index) {
    if (index < 0) return;
    const Value& value = *table[index];
    if (const auto* const tensor = value.get_if<Tensor>()) add_range(*tensor, ranges);
    if (const auto* const rows = value.get_if<SelectedRows>()) add_range(rows->value, ranges);
    if (const auto* const array = value.get_if<TensorArray>()) {
      for (const Tensor& element : *array) add_range(element, ranges);
    }
  };
  llvm::for_each(compiled.inputs, add);
  for (const CompiledOp::Shared& shared : compiled.shared) add(shared.spare);
  return ranges;
}

}  // namespace

void fill_new_outputs(const CompiledOp& compiled, Value* const* table) {
  const std::vector<MemoryRange> used = input_memory(compiled, table);
  for (const CompiledOp::Result& result : compiled.results) {
    auto* const tensor = table[compiled.outputs[result.output]]->get_if<Tensor>();
    if (!result.sized || result.is_also_input || tensor == nullptr || !tensor->initialized())
      continue;
    const MemoryRange own(tensor->raw(), tensor->raw() + tensor->storage_bytes());
    const bool is_new = llvm::none_of(used, [&](const MemoryRange& range) {
      return range.first < own.second && own.first < range.second;
    });
    if (is_new) fill_unwritten(*tensor);
  }
}

Status make_inputs_plain(const CompiledOp& compiled, Value* const* table,
                         kernels::CpuDevice& device) {
  for (const uint16_t position : compiled.lists.plain()) {
    Value& value = *table[compiled.inputs[position]];
    auto* tensor = value.get_if<Tensor>();
    if (tensor == nullptr) {
      // values of rows are in another layout only where they are in the memory of a GPU
      if (auto* const rows = value.get_if<SelectedRows>()) tensor = &rows->value;
    }
    if (tensor != nullptr && tensor->layout() != nullptr)
      MILLRACE_RETURN_IF_ERROR(kernels::bring_to(device, *tensor, nullptr));
  }
  for (const uint16_t position : compiled.lists.shared_layout()) {
    auto* const tensor = table[compiled.inputs[position]]->get_if<Tensor>();
    if (tensor != nullptr && tensor->layout() != nullptr && tensor->layout()->is_private())
      MILLRACE_RETURN_IF_ERROR(kernels::bring_to(device, *tensor, nullptr));
  }
  return Ok();
}

Status make_outputs_plain(const CompiledOp& compiled, Value* const* table,
                          kernels::CpuDevice& device) {
  for (const int32_t index : compiled.outputs) {
    auto* const tensor = index < 0 ? nullptr : table[index]->get_if<Tensor>();
    if (tensor != nullptr && tensor->layout() != nullptr)
      MILLRACE_RETURN_IF_ERROR(kernels::bring_to(device, *tensor, nullptr));
  }
  return Ok();
}

Status check_inputs(const CompiledOp& compiled, Value* const* table) {
  for (const uint16_t position : compiled.lists.required()) {
    if (table[compiled.inputs[position]]->initialized()) continue;
    return Status(StatusCode::kExecution, "the input holds no value")
        .at(place_of(compiled, position))
        .with_hint("feed it, load parameters, or run the startup program");
  }
  return Ok();
}

Status check_written_once(const CompiledOp& compiled) {
  llvm::SmallDenseSet<int32_t, 8> seen;
  for (size_t i = 0; i < compiled.outputs.size(); ++i) {
    if (compiled.outputs[i] < 0 || seen.insert(compiled.outputs[i]).second) continue;
    return InvalidProgram("the op writes '{}' twice, expected a var for each output",
                          place_of(compiled, static_cast<uint16_t>(i), /*is_output=*/true).var);
  }
  return Ok();
}

}  // namespace millrace::executor
