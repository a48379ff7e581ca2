#include "frontend/network.h"

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "frontend/layer.h"
#include "frontend/state.h"
#include "ops/minimize/minimize.h"

namespace millrace {
namespace frontend {

State::State(int32_t seed)
    : registry(ops::standard_registry()),
      main(Program::create()),
      startup(Program::create()),
      builder(std::make_unique<ops::Builder>(*registry, *main, *startup)),
      random_seed(seed) {}

void State::fail(const char* layer, Status failure, std::source_location where) {
  if (!status.ok() || failure.ok()) return;
  Location place = failure.location();
  place.source = frame_text(where);
  status = Status(failure.code(), fmt::format("{}: {}", layer, failure.message())).at(place);
  if (!failure.hint().empty()) status = std::move(status).with_hint(failure.hint());
}

std::string frame_text(std::source_location where) {
  return fmt::format("File \"{}\", line {}, in {}", where.file_name(), where.line(),
                     where.function_name());
}

}  // namespace frontend

namespace {

const Var* declaration(const VarRef& ref) {
  return ref.ok() ? ref.state()->builder->block().find_var_recursive(ref.name()) : nullptr;
}

}  // namespace

std::vector<int64_t> VarRef::dims() const {
  const Var* const var = declaration(*this);
  return var == nullptr ? std::vector<int64_t>{} : var->dims().vec();
}

DType VarRef::dtype() const {
  const Var* const var = declaration(*this);
  return var == nullptr ? DType::kFloat32 : var->dtype();
}

void VarRef::stop_gradient() const {
  if (const Var* const var = declaration(*this)) ops::Builder::stop_gradient(var->block(), name_);
}

Network::Network(int32_t random_seed) : state_(std::make_unique<frontend::State>(random_seed)) {}
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;
Network::~Network() = default;

Status Network::status() const {
  return state_->status;
}

const Program& Network::main() const {
  return *state_->main;
}

const Program& Network::startup() const {
  return *state_->startup;
}

VarRef Network::data(const std::string& name, const std::vector<int64_t>& dims, DType dtype,
                     int32_t lod_level, std::source_location where) {
  frontend::State& state = *state_;
  if (!state.status.ok()) return {};
  if (state.main->root().find_var(name) != nullptr) {
    state.fail("data", InvalidArgument("'{}' is already declared", name), where);
    return {};
  }
  for (const int64_t dim : dims) {
    if (dim >= -1) continue;
    state.fail("data", InvalidArgument("'{}': expected dims of -1 or more, found {}", name, dim),
               where);
    return {};
  }
  VarSpec spec = VarSpec::tensor(dtype, dims);
  spec.lod_level = lod_level;
  spec.need_check_feed = true;
  spec.stop_gradient = true;
  state.main->root().declare(name, std::move(spec));
  return {state_.pointer().get(), name};
}

VarRef Network::parameter(const std::vector<int64_t>& dims, const ParamAttr& attr, DType dtype,
                          std::source_location where) {
  frontend::Layer layer(state_.pointer().get(), "param", where);
  if (attr.name.empty())
    return layer.fail(InvalidArgument("attr.name: expected a name, found an empty one"));
  return layer.param(attr, "w", dims, dtype, init::Xavier{});
}

StatusOr<Network::Training> Network::minimize(const VarRef& loss, MinimizeOptions options,
                                              std::source_location where) {
  frontend::State& state = *state_;
  MILLRACE_RETURN_IF_ERROR(state.status);
  if (loss.ok() && loss.state() != &state) {
    state.fail("minimize", InvalidArgument("loss '{}' belongs to a different network", loss.name()),
               where);
    return state.status;
  }
  if (options.parameters.empty()) options.parameters = state.parameters;
  options.no_grad.insert(state.frozen.begin(), state.frozen.end());
  for (const auto& [name, own] : state.parameter_options)
    options.parameter_options.try_emplace(name, own);
  ops::OpMarks& marks = state.builder->marks();
  marks.callstack = {"  " + frontend::frame_text(where)};
  StatusOr<ops::MinimizeResult> made = ops::minimize(*state.builder, loss.name(), options);
  marks.callstack.clear();
  if (!made.ok()) {
    state.fail("minimize", std::move(made).status(), where);
    return state.status;
  }
  Training training{made->learning_rate, {}};
  for (ops::ParamGrad& pair : made->param_grads)
    training.param_grads.emplace_back(std::move(pair.param), std::move(pair.grad));
  return training;
}

}  // namespace millrace
