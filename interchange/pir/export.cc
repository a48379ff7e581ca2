#include "interchange/pir/export.h"

#include <algorithm>
#include <set>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "interchange/pir/rows.h"
#include "interchange/pir/state.h"
#include "interchange/source_program.h"
#include "interchange/upgrade.h"
#include "ops/registry.h"

namespace millrace::interchange {
namespace pir {
namespace {

// Ops that read arrays of tensors.
bool reads_arrays(const Op& op) {
  const llvm::StringRef type = op.type();
  return type == "while" || type == "conditional_block" || type == "read_from_array" ||
         type == "lod_array_length" || type == "tensor_array_to_tensor";
}

// Ops whose result is the same if a gradient of rows is a dense one with zeros in the other rows.
bool takes_rows_as_dense(const Op& op) {
  static constexpr const char* kTypes[] = {"sgd",
                                           "momentum",
                                           "adagrad",
                                           "rmsprop",
                                           "sum",
                                           "scale",
                                           "merge_selected_rows",
                                           "get_tensor_from_selected_rows",
                                           "assign",
                                           "clip_by_norm"};
  // A bias would be added to the other rows as well.
  if (op.type() == "scale" && get_attr_or<float>(op, "bias", 0) != 0) return false;
  return std::find(std::begin(kTypes), std::end(kTypes), op.type()) != std::end(kTypes);
}

// Converts one program.
class ProgramExport final : public BlockConverter {
 public:
  ProgramExport(const ops::OpRegistry& registry, Program& program, const io::ParamValues& params,
                const PirOptions& options)
      : registry_(registry), block_(program.root()), params_(params), options_(options) {
    for (const ops::AttrDef& attr : registry.common_attrs()) common_.insert(attr.name.str());
  }

  StatusOr<PirModel> run() {
    PirModel model;
    const std::vector<const Op*> fetch_ops = in_columns(block_, "fetch");
    for (const Op* const fetch : fetch_ops) fetches_.push_back(fetch->first_input("X").str());
    if (!options_.fetches.empty()) fetches_ = options_.fetches;
    if (fetches_.empty()) fetches_ = natural_results(block_);
    state_ = state_of(block_);
    updates_ = llvm::any_of(block_.ops(), [&](const Op& op) {
      return llvm::any_of(op.output_names(), [&](llvm::StringRef name) {
        const Var* const var = block_.find_var(name);
        return (var != nullptr && var->persistable()) || op.reads(name);
      });
    });
    // An inference model computes from its feed ops; it needs the values of its parameters.
    const bool is_model = !fetch_ops.empty();
    MILLRACE_RETURN_IF_ERROR(is_model ? add_params(model.parameters)
                                      : add_stored(model.parameters));
    MILLRACE_RETURN_IF_ERROR(add_feeds());
    if (!is_model) MILLRACE_RETURN_IF_ERROR(add_implicit_feeds());
    MILLRACE_RETURN_IF_ERROR(check_inputs(is_model));
    MILLRACE_RETURN_IF_ERROR(convert(block_));
    MILLRACE_RETURN_IF_ERROR(add_fetches());
    if (!is_model) MILLRACE_RETURN_IF_ERROR(add_made());
    model.program = graph_.finish();
    return model;
  }

  Status convert(Block& block) override {
    for (Op& op : block.ops()) {
      if (op.type() == "feed" || op.type() == "fetch") continue;
      MILLRACE_RETURN_IF_ERROR(convert_op(op));
      if (block.index() == 0) store_results(op);
    }
    return Ok();
  }

  Status infer(Block& block) override {
    for (Op& op : block.ops()) {
      if (Block* const inner = owned_block(op); inner != nullptr) {
        MILLRACE_RETURN_IF_ERROR(infer(*inner));
      } else {
        MILLRACE_RETURN_IF_ERROR(infer_dims(registry_, op));
      }
    }
    return Ok();
  }

 private:
  Status add_param(const std::string& name, const TensorType& type) {
    if (!has_type(type.dtype))
      return Unimplemented("export to PIR: element type {} of the parameter '{}'",
                           dtype_name(type.dtype), name);
    stored_[name] = vars_[name] = graph_.parameter(name, type);
    return Ok();
  }

  Status add_params(std::vector<std::string>& names) {
    MILLRACE_ASSIGN_OR_RETURN(const auto read, read_params(block_, params_));
    for (const auto& [name, tensor] : read) {
      const auto dims = tensor->dims();
      MILLRACE_RETURN_IF_ERROR(
          add_param(name, {.dtype = tensor->dtype(), .dims = Dims(dims.begin(), dims.end())}));
      names.push_back(name);
    }
    return Ok();
  }

  // Persistable vars whose values the program finds in the scope: all of `params`, or none.
  Status add_stored(std::vector<std::string>& names) {
    for (const std::string& name : state_.stored) {
      const Var& var = *block_.find_var(name);
      if (var.kind() != VarKind::kLodTensor)
        return Unimplemented("export to PIR: the persistable var '{}' is of kind {}", name,
                             var_kind_name(var.kind()));
      TensorType type{.dtype = var.dtype(), .dims = Dims(var.dims().begin(), var.dims().end())};
      if (!params_.empty()) {
        const auto value = params_.find(name);
        const Tensor* const tensor =
            value == params_.end() ? nullptr : value->second.get_if<Tensor>();
        if (tensor == nullptr || !tensor->initialized())
          return NotFound("the parameter '{}' has no value, or it is not a dense tensor", name);
        type = {.dtype = tensor->dtype(),
                .dims = Dims(tensor->dims().begin(), tensor->dims().end())};
        names.push_back(name);
      }
      MILLRACE_RETURN_IF_ERROR(add_param(name, type));
    }
    std::sort(names.begin(), names.end());
    return Ok();
  }

  Status add_feed(const Var& var, const Location& location) {
    const std::string name = var.name().str();
    const TensorType type{.dtype = var.dtype(), .dims = Dims(var.dims().begin(), var.dims().end())};
    if (!has_type(type.dtype)) {
      return Unimplemented("export to PIR: element type {} of the fed var '{}'",
                           dtype_name(var.dtype()), name)
          .at(location);
    }
    vars_[name] =
        graph_.add("1.data", {},
                   {of_string("name", name), of_dims("shape", {type.dims.begin(), type.dims.end()}),
                    of_dtype("dtype", type.dtype), of_place(false)},
                   {result_of(type)})[0];
    return Ok();
  }

  Status add_feeds() {
    for (const Op* const feed : in_columns(block_, "feed")) {
      MILLRACE_ASSIGN_OR_RETURN(const Var* const var, fed_var(block_, *feed, options_.input_dims));
      MILLRACE_RETURN_IF_ERROR(add_feed(*var, feed->location()));
    }
    return Ok();
  }

  // Vars that the caller of the original's executor feeds by name.
  Status add_implicit_feeds() {
    for (const std::string& name : state_.fed) {
      Var& var = *block_.find_var(name);
      if (const auto dims = options_.input_dims.find(name); dims != options_.input_dims.end()) {
        if (var.dims().size() != dims->second.size())
          return InvalidArgument("dims of the input '{}': expected {} of them, found {}", name,
                                 var.dims().size(), dims->second.size());
        var.set_dims(dims->second);
      }
      MILLRACE_RETURN_IF_ERROR(add_feed(var, {}));
    }
    return Ok();
  }

  Status check_inputs(bool is_model) const {
    if (is_model) return check_input_names(block_, options_.input_dims);
    for (const auto& [name, dims] : options_.input_dims)
      if (!vars_.contains(name) || stored_.contains(name))
        return InvalidArgument("dims of '{}', which is no input of the program", name);
    return Ok();
  }

  // Memory of one var only: an update in place must not change the value of another var.
  Value own_value(const Op& op, const std::string& name) {
    const Value value = vars_.at(name);
    const auto is_shared = [&](llvm::StringRef other) {
      const auto found = vars_.find(other.str());
      return other != name && found != vars_.end() && found->second.id == value.id;
    };
    if (value.type().is_array) return value;
    if (!llvm::any_of(op.input_names(), is_shared) && !llvm::any_of(op.output_names(), is_shared))
      return value;
    return graph_.add("1.assign", {value}, {}, {result_of(value.type())})[0];
  }

  // Writes new values of stored vars to their memory, unless the op did so.
  void store_results(const Op& op) {
    std::set<std::string> written;
    for (const llvm::StringRef name : op.output_names()) written.insert(name.str());
    if (owned_block(op) != nullptr)
      for (const auto& [name, value] : stored_) written.insert(name);
    for (const std::string& name : written) {
      const auto found = vars_.find(name);
      if (found == vars_.end() || found->second.is_list) continue;
      if (updates_) found->second = own_value(op, name);
      const auto memory = stored_.find(name);
      if (memory == stored_.end() || memory->second.id == found->second.id) continue;
      if (!updated_.contains(found->second.id))
        found->second = graph_.add("1.assign_out_", {found->second, memory->second}, {},
                                   {result_of(memory->second.type())})[0];
      memory->second = found->second;
    }
  }

  // Persistable vars that the program sets: they are left in the scope.
  Status add_made() {
    for (const std::string& name : state_.made) {
      const auto found = vars_.find(name);
      if (found == vars_.end())
        return Unimplemented("export to PIR: the persistable var '{}' gets no value", name);
      Value kept = result_of(found->second.type());
      kept.is_persistable = true;
      kept = graph_.add("1.assign", {found->second}, {}, {kept})[0];
      graph_.add("0.shadow_output", {kept}, {of_string("output_name", name)}, {});
    }
    return Ok();
  }

  Status convert_op(Op& op) {
    const auto row = all_converters().rows.find(op.type().str());
    const auto function = all_converters().functions.find(op.type().str());
    const ops::OpDef* const def = registry_.find(op.type());
    const bool is_known =
        row != all_converters().rows.end() || function != all_converters().functions.end();
    if (!is_known || def == nullptr)
      return Unimplemented("export to PIR: the op has no counterpart").at(op.location());
    if (!reads_arrays(op) && !reads_dense_rows(op))
      MILLRACE_RETURN_IF_ERROR(check_dense_inputs(op, "PIR"));
    MILLRACE_RETURN_IF_ERROR(infer_dims(registry_, op));
    OpContext context(op, *def, graph_, vars_, *this);
    keep_shape(context);
    MILLRACE_RETURN_IF_ERROR(function != all_converters().functions.end()
                                 ? function->second(context)
                                 : convert_by_row(context, *row->second));
    MILLRACE_RETURN_IF_ERROR(context.finish(common_));
    updated_.insert(context.updated().begin(), context.updated().end());
    return Ok();
  }

  [[nodiscard]] bool scales_rows(const Op& op) const {
    if (op.type() != "elementwise_mul") return false;
    const auto factor = vars_.find(op.first_input("Y").str());
    return factor != vars_.end() &&
           llvm::all_of(factor->second.type().dims, [](int64_t dim) { return dim == 1; });
  }

  // Gradients of rows are written as dense ones. A factor for all elements scales both alike.
  [[nodiscard]] bool reads_dense_rows(const Op& op) const {
    return (takes_rows_as_dense(op) || scales_rows(op)) &&
           llvm::all_of(op.input_names(), [&](llvm::StringRef name) {
             const Var* const var = op.block().find_var_recursive(name);
             return var == nullptr || var->kind() == VarKind::kLodTensor ||
                    (var->kind() == VarKind::kSelectedRows && vars_.contains(name.str()));
           });
  }

  // The gradients of reshape2 and similar ops read the extents of the operand.
  void keep_shape(OpContext& context) {
    const auto found = vars_.find(context.op().first_input("X").str());
    const llvm::StringRef xshape = context.op().first_output("XShape");
    if (xshape.empty() || found == vars_.end()) return;
    vars_[shape_key(xshape)] = found->second;
    context.note_output_slot("XShape");
  }

  Status add_fetches() {
    for (const std::string& name : fetches_) {
      const auto found = vars_.find(name);
      if (found == vars_.end()) return InvalidProgram("the fetched var '{}' has no value", name);
      graph_.add("1.fetch", {found->second},
                 {of_string("name", name), of_i32("col", next_column_++)},
                 {result_of(found->second.type())});
    }
    return Ok();
  }

  const ops::OpRegistry& registry_;
  Block& block_;
  const io::ParamValues& params_;
  const PirOptions& options_;
  GraphBuilder graph_;
  VarValues vars_;
  ProgramState state_;
  VarValues stored_;           // the memory of each persistable var
  std::set<int64_t> updated_;  // values that are the memory of a var
  std::vector<std::string> fetches_;
  bool updates_ = false;  // ops update vars in place
  std::set<std::string> common_;
  int64_t next_column_ = 0;
};

}  // namespace
}  // namespace pir

StatusOr<PirModel> export_pir(const Program& program, const io::ParamValues& params,
                              const PirOptions& options) {
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  const std::unique_ptr<Program> copy = program.clone();
  MILLRACE_RETURN_IF_ERROR(upgrade_and_check(*copy, *registry));
  return pir::ProgramExport(*registry, *copy, params, options).run();
}

std::vector<std::string> pir_op_types() {
  std::set<std::string> types;
  for (const auto& [type, row] : pir::all_converters().rows) types.insert(type);
  for (const auto& [type, function] : pir::all_converters().functions) types.insert(type);
  return {types.begin(), types.end()};
}

}  // namespace millrace::interchange
