#include "frontend/layer.h"

#include "framework/base/errors.h"

namespace millrace::frontend {
namespace {

State* state_of(const std::vector<VarRef>& inputs) {
  for (const VarRef& input : inputs)
    if (input.ok()) return input.state();
  return nullptr;
}

}  // namespace

Layer::Layer(State* state, const char* kind, std::source_location where, const std::string& name)
    : state_(state), kind_(kind), where_(where) {
  begin(name);
}

Layer::Layer(const std::vector<VarRef>& inputs, const char* kind, std::source_location where,
             const std::string& name)
    : state_(state_of(inputs)), kind_(kind), where_(where) {
  for (const VarRef& input : inputs) {
    if (!input.ok()) {
      fail(InvalidArgument("expected a var in place of an empty VarRef"));
    } else if (input.state() != state_) {
      fail(InvalidArgument("inputs '{}' and '{}' belong to different networks",
                           inputs.front().name(), input.name()));
    }
    // true if the block that created the var has been closed
    if (ok() && state_->builder->block().find_var_recursive(input.name()) == nullptr)
      fail(InvalidArgument("'{}' is a var of a block that has ended", input.name()));
  }
  begin(name);
}

void Layer::begin(const std::string& name) {
  if (!ok()) return;
  name_ = name.empty() ? state_->builder->names().next(kind_) : name;
  state_->builder->marks().callstack = {"  " + frame_text(where_)};
}

Layer::~Layer() {
  if (state_ != nullptr) state_->builder->marks().callstack.clear();
}

VarRef Layer::fail(Status status) {
  if (state_ != nullptr) state_->fail(kind_, std::move(status), where_);
  return {};
}

const Var& Layer::var(const VarRef& ref) const {
  return *state_->builder->block().find_var_recursive(ref.name());
}

VarRef Layer::param(const ParamAttr& attr, const std::string& suffix,
                    const std::vector<int64_t>& dims, DType dtype, const Initializer& fallback) {
  if (!ok()) return {};
  ops::Builder& builder = *state_->builder;
  std::string name = builder.names().next(name_ + "." + suffix);
  if (!attr.name.empty()) name = attr.name;
  Block& root = builder.main().root();
  if (const Var* const old = root.find_var(name)) {
    if (old->is_parameter() && old->dims() == llvm::ArrayRef<int64_t>(dims) &&
        old->dtype() == dtype)
      return {state_, name};
    return fail(InvalidArgument("'{}' is already declared with another shape or type", name));
  }
  for (const int64_t dim : dims) {
    if (dim > 0) continue;
    return fail(InvalidArgument("parameter '{}': expected positive dims, found {}", name, dim));
  }
  VarSpec spec = VarSpec::tensor(dtype, dims);
  spec.persistable = true;
  spec.is_parameter = true;
  if (!attr.trainable) spec.stop_gradient = true;
  root.declare(name, spec);
  builder.startup().root().declare(name, spec);
  const Status filled = fill_parameter(builder, name, dims, dtype,
                                       attr.initializer.value_or(fallback), state_->random_seed);
  if (!filled.ok()) return fail(filled);
  if (attr.trainable)
    state_->parameters.push_back(name);
  else
    state_->frozen.insert(name);
  state_->parameter_options[name] = {attr.learning_rate, attr.regularizer, attr.need_clip,
                                     attr.clip};
  return {state_, name};
}

VarRef Layer::out(DType dtype) {
  if (!ok()) return {};
  return {state_, state_->builder->numbered_var(name_ + ".tmp", VarSpec::tensor(dtype, {}))};
}

void Layer::append(const ops::NewOp& op) {
  if (!ok()) return;
  StatusOr<Op*> made = state_->builder->append(op);
  if (!made.ok()) fail(std::move(made).status());
}

VarRef Layer::result(ops::NewOp op, DType dtype, const char* slot) {
  VarRef made = out(dtype);
  if (!made.ok()) return {};
  op.output(slot, {made.name()});
  append(op);
  return ok() ? made : VarRef();
}

VarRef Layer::add_bias(const VarRef& x, const ParamAttr& attr, int64_t size, int32_t dim) {
  const VarRef bias = param(attr, "b", {size}, x.dtype(), init::Constant{0});
  if (!ok()) return {};
  ops::NewOp add("elementwise_add");
  add.input("X", {x.name()}).input("Y", {bias.name()}).attr("axis", make_attr(dim));
  return result(std::move(add), x.dtype());
}

VarRef Layer::activate(const VarRef& x, const std::string& act, bool library) {
  if (act.empty() || !ok()) return x;
  const ops::OpDef* const def = state_->registry->find(act);
  if (def == nullptr || def->find_input("X") == nullptr || def->find_output("Out") == nullptr) {
    Status status = InvalidArgument("act: expected an activation, found '{}'", act);
    const std::string near = state_->registry->suggest(act);
    return fail(near.empty() ? status
                             : std::move(status).with_hint("did you mean '" + near + "'?"));
  }
  ops::NewOp op(act);
  op.input("X", {x.name()});
  if (library) op.attr("use_cudnn", make_attr(true));
  return result(std::move(op), x.dtype());
}

void Layer::set_dtype(const VarRef& ref, DType dtype) {
  if (!ok()) return;
  Var& var = *state_->builder->block().find_var_recursive(ref.name());
  VarSpec spec = var.spec();
  spec.dtype = dtype;
  var.set_spec(std::move(spec));
}

std::vector<std::string> names_of(const std::vector<VarRef>& refs) {
  std::vector<std::string> names;
  for (const VarRef& ref : refs) names.push_back(ref.name());
  return names;
}

}  // namespace millrace::frontend
