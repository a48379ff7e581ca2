#include "api/training.h"

#include "framework/program.h"
#include "ops/backward/append_backward.h"
#include "ops/construct/builder.h"
#include "ops/minimize/minimize.h"
#include "ops/registry.h"
#include "ops/verify.h"

namespace millrace::api {
namespace {

ParamGrads pairs_of(const std::vector<ops::ParamGrad>& found) {
  ParamGrads pairs;
  for (const ops::ParamGrad& each : found) pairs.emplace_back(each.param, each.grad);
  return pairs;
}

}  // namespace

StatusOr<BackwardResult> append_backward(const Program& main, const std::string& loss,
                                         const std::vector<std::string>& parameters,
                                         const std::set<std::string>& no_grad) {
  const auto registry = ops::standard_registry();
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry, main));
  std::unique_ptr<Program> program = main.clone();
  BackwardResult result;
  ops::BackwardRequest request;
  request.loss = loss;
  request.parameters = parameters;
  request.no_grad = no_grad;
  request.earlier_calls = ops::earlier_backward_calls(program->root());
  request.warnings = &result.warnings;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ops::ParamGrad> grads,
                            ops::append_backward(*registry, *program, request));
  result.param_grads = pairs_of(grads);
  result.main = std::move(program);
  return result;
}

StatusOr<MinimizeResult> minimize(const Program& main, const Program& startup,
                                  const std::string& loss, const MinimizeOptions& options) {
  const auto registry = ops::standard_registry();
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry, main));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry, startup));
  std::unique_ptr<Program> training = main.clone();
  std::unique_ptr<Program> initial = startup.clone();
  ops::Builder builder(*registry, *training, *initial);
  MILLRACE_ASSIGN_OR_RETURN(ops::MinimizeResult made, ops::minimize(builder, loss, options));
  MinimizeResult result;
  result.main = std::move(training);
  result.startup = std::move(initial);
  result.param_grads = pairs_of(made.param_grads);
  result.learning_rate = std::move(made.learning_rate);
  result.warnings = std::move(made.warnings);
  return result;
}

}  // namespace millrace::api
