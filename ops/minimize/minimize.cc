#include "ops/minimize/minimize.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ops/backward/known_names.h"
#include "ops/minimize/error_clip.h"
#include "ops/minimize/gradients.h"
#include "ops/minimize/schedule.h"
#include "ops/minimize/update.h"
#include "ops/minimize/update_rule.h"

namespace millrace::ops {
namespace {

// The var of the schedule; empty for a constant rate, which is declared after the gradients.
StatusOr<std::string> scheduled_rate(Builder& builder, const LearningRate& rate) {
  if (const auto* const decay = std::get_if<Decay>(&rate)) return add_schedule(builder, *decay);
  if (const auto* const warmup = std::get_if<LinearWarmup>(&rate))
    return add_schedule(builder, *warmup);
  const auto* const var = std::get_if<RateVar>(&rate);
  if (var == nullptr) return std::string();
  if (builder.main().root().find_var(var->name) == nullptr) {
    return InvalidArgument("learning rate '{}': expected a var of block 0 of the main program",
                           var->name);
  }
  return var->name;
}

// The initial value of a rate that no op computes.
double initial_rate(const LearningRate& rate) {
  if (const auto* const stepped = std::get_if<SteppedRate>(&rate)) return stepped->initial;
  return std::get<double>(rate);
}

// Rates are never in half precision.
DType rate_dtype(const Block& root, const std::string& loss) {
  const Var* const var = root.find_var(loss);
  return var != nullptr && var->dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// Older releases do not save which vars are parameters. A program that states none has none, unless
// it reads persistable numbers.
Status parameters_are_known(const Program& program) {
  const Block& root = program.root();
  const Var* candidate = nullptr;
  for (const Var& var : root.vars()) {
    if (var.is_parameter()) return Ok();
    if (var.persistable() && var.kind() == VarKind::kLodTensor && is_floating(var.dtype()) &&
        root.has_readers(var.name()) && !root.has_writers(var.name()))
      candidate = &var;
  }
  if (candidate == nullptr) return Ok();
  return InvalidArgument("minimize: the program does not say which vars are parameters")
      .with_hint(
          fmt::format("older releases do not save that: name them in 'parameters', such as '{}'",
                      candidate->name().str()));
}

// Options name vars that exist, and parameters are known.
Status check_names(const Program& program, const MinimizeOptions& options) {
  using backward::DeclaredIn;
  for (const auto& [name, settings] : options.parameter_options) {
    MILLRACE_RETURN_IF_ERROR(
        backward::require_declared(program, name, DeclaredIn::kRoot, "parameter_options"));
  }
  for (const auto& [name, clip] : options.error_clips) {
    MILLRACE_RETURN_IF_ERROR(
        backward::require_declared(program, name, DeclaredIn::kAnyBlock, "error_clips"));
  }
  return options.parameters.empty() ? parameters_are_known(program) : Ok();
}

// A program that trains nothing is allowed (all parameters may be frozen), but seldom meant.
void warn_of_nothing(const std::string& loss, std::vector<Status>& warnings) {
  warnings.push_back(
      InvalidProgram("loss '{}': no parameter has a gradient, so nothing is trained", loss));
}

StatusOr<std::vector<ParamGrad>> gradients(Builder& builder, const std::string& loss,
                                           const MinimizeOptions& options,
                                           std::vector<Status>& warnings) {
  BackwardRequest request;
  request.warnings = &warnings;
  request.loss = loss;
  request.parameters = options.parameters;
  request.no_grad = options.no_grad;
  request.earlier_calls = earlier_backward_calls(builder.main().root());
  request.after_append = clip_errors(options.error_clips);
  return append_backward(builder.registry(), builder.main(), request);
}

}  // namespace

int earlier_backward_calls(const Block& root) {
  int calls = 0;
  for (const Op& op : root.ops()) {
    const int32_t role = get_attr_or<int32_t>(op, "op_role", 0);
    if (op.type() == "fill_constant" && role == (kRoleBackward | kRoleLoss)) ++calls;
  }
  return calls;
}

StatusOr<MinimizeResult> minimize(Builder& builder, const std::string& loss,
                                  const MinimizeOptions& options) {
  if (builder.block().index() != 0)
    return InvalidArgument("minimize: expected block 0 as current block, found {}",
                           builder.block().index());
  MILLRACE_RETURN_IF_ERROR(check_error_clips(options.error_clips));
  MILLRACE_RETURN_IF_ERROR(check_names(builder.main(), options));
  MinimizeResult result;
  MILLRACE_ASSIGN_OR_RETURN(result.learning_rate, scheduled_rate(builder, options.learning_rate));
  MILLRACE_ASSIGN_OR_RETURN(result.param_grads, gradients(builder, loss, options, result.warnings));
  if (result.param_grads.empty()) warn_of_nothing(loss, result.warnings);
  std::vector<ParamGrad> pairs = result.param_grads;
  std::sort(pairs.begin(), pairs.end(),
            [](const ParamGrad& a, const ParamGrad& b) { return a.param < b.param; });
  MILLRACE_RETURN_IF_ERROR(clip_gradients(builder, options.clip, options.parameter_options, pairs));
  MILLRACE_RETURN_IF_ERROR(regularize_gradients(
      builder, options.regularization, options.parameter_options, fuses_l2(options.method), pairs));
  if (result.learning_rate.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(result.learning_rate,
                              add_constant_rate(builder, initial_rate(options.learning_rate),
                                                rate_dtype(builder.main().root(), loss)));
  }
  MILLRACE_ASSIGN_OR_RETURN(result.optimize_ops,
                            append_updates(builder, options, result.learning_rate, pairs));
  return result;
}

}  // namespace millrace::ops
