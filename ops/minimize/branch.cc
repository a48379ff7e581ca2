#include "ops/minimize/branch.h"

#include <algorithm>

#include "ops/minimize/rate_math.h"

namespace millrace::ops {
namespace {

// Names of outer vars that the block reads, sorted.
std::vector<std::string> names_from_outside(const Block& block) {
  std::vector<std::string> names;
  for (const Op& op : block.ops()) {
    for (const llvm::StringRef name : op.input_names()) {
      if (block.find_var(name) == nullptr) names.push_back(name.str());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Spec of a temporary with the type and shape of `var`.
VarSpec spec_like(const Var& var) {
  VarSpec spec = VarSpec::tensor(var.dtype(), var.dims());
  spec.lod_level = var.spec().lod_level;
  return spec;
}

std::string generated(Builder& builder, VarSpec spec) {
  return builder.numbered_var("_generated_var", std::move(spec));
}

}  // namespace

Status add_conditional_block(Builder& builder, const std::string& condition,
                             const std::vector<std::string>& outputs,
                             const std::function<Status()>& body) {
  Block& inner = builder.enter_block();
  Status status = body();
  builder.leave_block();
  MILLRACE_RETURN_IF_ERROR(std::move(status));
  NewOp op("conditional_block");
  op.input("Cond", {condition})
      .input("Input", names_from_outside(inner))
      .output("Out", outputs)
      .output("Scope", {generated(builder, VarSpec::shapeless(VarKind::kStepScopes))})
      .attr("sub_block", AttrValue::of_block(inner.index()))
      .attr("is_scalar_condition", make_attr(true))
      .attr("skip_eager_deletion_vars", make_attr(std::vector<std::string>{}));
  return builder.append(op).status();
}

StatusOr<std::string> add_choice(Builder& builder, const std::string& condition,
                                 const std::function<StatusOr<std::string>()>& if_true,
                                 const std::function<StatusOr<std::string>()>& if_false) {
  VarSpec spec;
  // A branch copies its result to an outer var, which gets its name after the ops of the branch are
  // built.
  const auto branch = [&](const std::string& when,
                          const std::function<StatusOr<std::string>()>& body) -> rate::Name {
    std::string out;
    const int32_t outside = builder.block().index();
    MILLRACE_RETURN_IF_ERROR(add_conditional_block(builder, when, {}, [&]() -> Status {
      MILLRACE_ASSIGN_OR_RETURN(const std::string value, body());
      spec = spec_like(*builder.block().find_var_recursive(value));
      out = builder.names().next("_generated_var");
      builder.main().block(static_cast<size_t>(outside)).declare(out, spec);
      return rate::assign(builder, value, out);
    }));
    builder.block().back().set_output("Out", out);
    return out;
  };
  MILLRACE_ASSIGN_OR_RETURN(const std::string then_value, branch(condition, if_true));
  MILLRACE_ASSIGN_OR_RETURN(const std::string otherwise,
                            rate::unary(builder, "logical_not", condition, DType::kBool));
  MILLRACE_ASSIGN_OR_RETURN(const std::string else_value, branch(otherwise, if_false));
  MILLRACE_ASSIGN_OR_RETURN(const std::string mask,
                            rate::cast(builder, condition, DType::kBool, DType::kInt32));
  const std::string out = generated(builder, spec);
  NewOp select("select_input");
  select.input("Mask", {mask}).input("X", {else_value, then_value}).output("Out", {out});
  MILLRACE_RETURN_IF_ERROR(builder.append(select).status());
  return out;
}

}  // namespace millrace::ops
