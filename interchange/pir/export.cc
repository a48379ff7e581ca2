#include "interchange/pir/export.h"

#include <set>

#include "framework/base/errors.h"
#include "interchange/pir/rows.h"
#include "interchange/source_program.h"
#include "ops/registry.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::interchange {
namespace pir {
namespace {

const Converters& all_converters() {
  static const Converters& table = *[] {
    auto* const made = new Converters;
    add_activation_ops(*made);
    add_control_flow_ops(*made);
    add_conv_ops(*made);
    add_detection_ops(*made);
    add_elementwise_ops(*made);
    add_embedding_ops(*made);
    add_fill_ops(*made);
    add_formula_ops(*made);
    add_index_ops(*made);
    add_loss_ops(*made);
    add_matmul_ops(*made);
    add_norm_ops(*made);
    add_pool_ops(*made);
    add_quant_ops(*made);
    add_reduce_ops(*made);
    add_resize_ops(*made);
    add_sequence_ops(*made);
    add_shape_ops(*made);
    return made;
  }();
  return table;
}

// Ops that read arrays of tensors.
bool reads_arrays(const Op& op) {
  const llvm::StringRef type = op.type();
  return type == "while" || type == "conditional_block" || type == "read_from_array" ||
         type == "lod_array_length" || type == "tensor_array_to_tensor";
}

// The passes of upgrade-program.
Status upgrade(const ops::OpRegistry& registry, Program& program) {
  transpiler::PassContext context(registry);
  for (const transpiler::UpgradeFn pass :
       {transpiler::upgrade_attr_names, transpiler::upgrade_attr_kinds,
        transpiler::upgrade_formulas, transpiler::upgrade_op_types}) {
    const StatusOr<bool> changed = pass(program, context);
    if (!changed.ok()) return Status(changed.status());
  }
  return Ok();
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
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<const Op*> fetches, fetches_of(block_));
    MILLRACE_RETURN_IF_ERROR(add_params(model.parameters));
    MILLRACE_RETURN_IF_ERROR(add_feeds());
    MILLRACE_RETURN_IF_ERROR(convert(block_));
    MILLRACE_RETURN_IF_ERROR(add_fetches(fetches));
    model.program = graph_.finish();
    return model;
  }

  Status convert(Block& block) override {
    for (Op& op : block.ops()) {
      if (op.type() == "feed" || op.type() == "fetch") continue;
      MILLRACE_RETURN_IF_ERROR(convert_op(op));
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
  Status add_params(std::vector<std::string>& names) {
    MILLRACE_ASSIGN_OR_RETURN(const auto read, read_params(block_, params_));
    for (const auto& [name, tensor] : read) {
      if (!has_type(tensor->dtype()))
        return Unimplemented("export to PIR: element type {} of the parameter '{}'",
                             dtype_name(tensor->dtype()), name);
      const auto dims = tensor->dims();
      vars_[name] = graph_.parameter(
          name, {.dtype = tensor->dtype(), .dims = Dims(dims.begin(), dims.end())});
      names.push_back(name);
    }
    return Ok();
  }

  Status add_feeds() {
    for (const Op* const feed : in_columns(block_, "feed")) {
      MILLRACE_ASSIGN_OR_RETURN(const Var* const var, fed_var(block_, *feed, options_.input_dims));
      const std::string name = var->name().str();
      const TensorType type{.dtype = var->dtype(),
                            .dims = Dims(var->dims().begin(), var->dims().end())};
      if (!has_type(type.dtype)) {
        return Unimplemented("export to PIR: element type {} of the fed var '{}'",
                             dtype_name(var->dtype()), name)
            .at(feed->location());
      }
      vars_[name] = graph_.add(
          "1.data", {},
          {of_string("name", name), of_dims("shape", {type.dims.begin(), type.dims.end()}),
           of_dtype("dtype", type.dtype), of_place(false)},
          {result_of(type)})[0];
    }
    return check_input_names(block_, options_.input_dims);
  }

  Status convert_op(Op& op) {
    const auto row = all_converters().rows.find(op.type().str());
    const auto function = all_converters().functions.find(op.type().str());
    const ops::OpDef* const def = registry_.find(op.type());
    const bool is_known =
        row != all_converters().rows.end() || function != all_converters().functions.end();
    if (!is_known || def == nullptr)
      return Unimplemented("export to PIR: the op has no counterpart").at(op.location());
    if (!reads_arrays(op)) MILLRACE_RETURN_IF_ERROR(check_dense_inputs(op, "PIR"));
    MILLRACE_RETURN_IF_ERROR(infer_dims(registry_, op));
    OpContext context(op, *def, graph_, vars_, *this);
    MILLRACE_RETURN_IF_ERROR(row != all_converters().rows.end()
                                 ? convert_by_row(context, *row->second)
                                 : function->second(context));
    return context.finish(common_);
  }

  Status add_fetches(const std::vector<const Op*>& fetches) {
    for (const Op* const fetch : fetches) {
      const std::string name = fetch->first_input("X").str();
      const auto found = vars_.find(name);
      if (found == vars_.end())
        return InvalidProgram("the fetched var '{}' has no value", name).at(fetch->location());
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
  std::set<std::string> common_;
  int64_t next_column_ = 0;
};

}  // namespace
}  // namespace pir

StatusOr<PirModel> export_pir(const Program& program, const io::ParamValues& params,
                              const PirOptions& options) {
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  const std::unique_ptr<Program> copy = program.clone();
  MILLRACE_RETURN_IF_ERROR(pir::upgrade(*registry, *copy));
  return pir::ProgramExport(*registry, *copy, params, options).run();
}

std::vector<std::string> pir_op_types() {
  std::set<std::string> types;
  for (const auto& [type, row] : pir::all_converters().rows) types.insert(type);
  for (const auto& [type, function] : pir::all_converters().functions) types.insert(type);
  return {types.begin(), types.end()};
}

}  // namespace millrace::interchange
