#include <optional>

#include "framework/names.h"
#include "ops/minimize/gradients.h"

namespace millrace::ops {
namespace {

// A var with the shape of the parameter.
std::string term_var(Builder& builder, const Var& param) {
  VarSpec spec = VarSpec::tensor(param.dtype(), param.dims());
  spec.lod_level = param.lod_level();
  return builder.numbered_var("_generated_var", std::move(spec));
}

Status append_unary(Builder& builder, NewOp op, const std::string& x, const std::string& out) {
  op.input("X", {x}).output("Out", {out});
  return builder.append(op).status();
}

// Appends the ops that compute the term to add to the gradient.
StatusOr<std::string> decay_term(Builder& builder, const Regularizer& regularizer,
                                 const Var& param) {
  std::string base = param.name().str();
  double coeff = 0;
  if (const L1Decay* const l1 = std::get_if<L1Decay>(&regularizer)) {
    const std::string sign = term_var(builder, param);
    MILLRACE_RETURN_IF_ERROR(append_unary(builder, NewOp("sign"), base, sign));
    base = sign;
    coeff = l1->coeff;
  } else {
    coeff = std::get<L2Decay>(regularizer).coeff;
  }
  std::string term = term_var(builder, param);
  NewOp scale("scale");
  scale.attr("scale", make_attr(static_cast<float>(coeff)));
  MILLRACE_RETURN_IF_ERROR(append_unary(builder, std::move(scale), base, term));
  return term;
}

// Adds the term to the gradient: in place, or into a new dense var if the gradient is sparse.
StatusOr<std::string> add_term(Builder& builder, const Var& param, const std::string& grad,
                               const std::string& term) {
  std::string out = grad;
  const Var* const var = builder.block().find_var(grad);
  if (var != nullptr && var->kind() == VarKind::kSelectedRows) {
    out += names::kNewGrad;
    VarSpec spec = VarSpec::tensor(param.dtype(), param.dims());
    spec.lod_level = param.lod_level();
    builder.block().declare(out, std::move(spec));
  }
  NewOp sum("sum");
  sum.input("X", {grad, term}).output("Out", {out});
  MILLRACE_RETURN_IF_ERROR(builder.append(sum).status());
  return out;
}

}  // namespace

ParameterOptions options_of(const ParameterTable& table, const std::string& param) {
  const auto found = table.find(param);
  return found == table.end() ? ParameterOptions{} : found->second;
}

Status regularize_gradients(Builder& builder, const std::optional<Regularizer>& common,
                            const ParameterTable& parameters, bool fuses_l2,
                            std::vector<ParamGrad>& pairs) {
  MarkScope scope(builder);
  scope.scope("regularization");
  for (ParamGrad& pair : pairs) {
    std::optional<Regularizer> decay = options_of(parameters, pair.param).regularizer;
    if (!decay) decay = common;
    if (!decay || (fuses_l2 && std::holds_alternative<L2Decay>(*decay))) continue;
    MarkScope marks(builder);
    marks.role(kRoleOptimize, {pair.param, pair.grad});
    const Var& param = *builder.block().find_var(pair.param);
    MILLRACE_ASSIGN_OR_RETURN(const std::string term, decay_term(builder, *decay, param));
    MILLRACE_ASSIGN_OR_RETURN(pair.grad, add_term(builder, param, pair.grad, term));
  }
  return Ok();
}

}  // namespace millrace::ops
