// Values, loops, branches, and calls of any op.
#include <algorithm>

#include "framework/base/errors.h"
#include "frontend/layer.h"
#include "frontend/layers.h"
#include "ops/minimize/branch.h"

namespace millrace::layers {
namespace {

using frontend::Layer;
using frontend::State;
using ops::NewOp;

// The state of a network, obtained through a temporary handle.
State* state_of(Network& net) {
  return net.handle("").state();
}

// Appends the op with `to` as its Out, or with a new var if `to` is not given.
VarRef result_to(Layer& layer, NewOp op, DType dtype, const VarRef& to) {
  if (!to.ok()) return layer.result(std::move(op), dtype);
  op.output("Out", {to.name()});
  layer.append(op);
  return layer.ok() ? to : VarRef();
}

Vars with(const VarRef& to, Vars inputs) {
  if (to.ok()) inputs.push_back(to);
  return inputs;
}

// Sorted names of outside vars that the ops of the block read (write). Sub-blocks are covered,
// because their ops list the vars that they use.
std::vector<std::string> outside(const Block& block, bool writes) {
  std::vector<std::string> names;
  for (const Op& op : block.ops()) {
    for (const llvm::StringRef name : writes ? op.output_names() : op.input_names())
      if (block.find_var(name) == nullptr) names.push_back(name.str());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

VarRef fill_constant(Network& net, std::vector<int64_t> shape, DType dtype, double value,
                     Where where) {
  State* const state = state_of(net);
  if (state->status.ok()) (void)state->builder->names().next("fill_constant");
  Layer layer(state, "fill_constant", where);
  if (!layer.ok()) return {};
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (is_integer(dtype) && !(value >= -kEnd && value < kEnd))
    return layer.fail(InvalidArgument("value: expected an integer of 64 bits, found {}", value));
  NewOp op("fill_constant");
  op.attr("shape", make_attr(std::move(shape)))
      .attr("dtype", make_attr(static_cast<int32_t>(dtype)))
      .attr("value", make_attr(static_cast<float>(value)))
      .attr("str_value", make_attr(is_integer(dtype) ? std::to_string(static_cast<int64_t>(value))
                                                     : ops::number_text(value)));
  const VarRef made = layer.result(std::move(op), dtype);
  made.stop_gradient();
  return made;
}

VarRef assign(const VarRef& x, const VarRef& to, Where where) {
  Layer layer(with(to, {x}), "assign", where);
  if (!layer.ok()) return {};
  NewOp op("assign");
  op.input("X", {x.name()});
  return result_to(layer, std::move(op), x.dtype(), to);
}

VarRef increment(const VarRef& x, double step, Where where) {
  Layer layer({x}, "increment", where);
  if (!layer.ok()) return {};
  NewOp op("increment");
  op.input("X", {x.name()}).attr("step", make_attr(static_cast<float>(step)));
  return result_to(layer, std::move(op), x.dtype(), x);
}

VarRef less_than(const VarRef& x, const VarRef& y, const VarRef& to, Where where) {
  Layer layer(with(to, {x, y}), "less_than", where);
  if (!layer.ok()) return {};
  NewOp op("less_than");
  op.input("X", {x.name()}).input("Y", {y.name()}).attr("axis", make_attr(int32_t{-1}));
  const VarRef made = result_to(layer, std::move(op), DType::kBool, to);
  made.stop_gradient();
  return made;
}

void while_loop(const VarRef& condition, const std::function<void()>& body, Where where) {
  Layer layer({condition}, "while", where);
  if (!layer.ok()) return;
  ops::Builder& builder = *layer.state().builder;
  Block& inner = builder.enter_block();
  body();
  builder.leave_block();
  if (!layer.ok()) return;
  std::vector<std::string> written = outside(inner, /*writes=*/true);
  if (std::find(written.begin(), written.end(), condition.name()) == written.end()) {
    layer.fail(
        InvalidArgument("body: expected an op that updates '{}', found none", condition.name()));
    return;
  }
  std::vector<std::string> read = outside(inner, /*writes=*/false);
  std::erase(read, condition.name());
  NewOp op("while");
  op.input("X", std::move(read))
      .input("Condition", {condition.name()})
      .output("Out", std::move(written))
      .output("StepScopes",
              {builder.numbered_var("_generated_var", VarSpec::shapeless(VarKind::kStepScopes))})
      .attr("sub_block", AttrValue::of_block(inner.index()))
      .attr("is_test", make_attr(false));
  layer.append(op);
}

VarRef cond(const VarRef& condition, const std::function<VarRef()>& if_true,
            const std::function<VarRef()>& if_false, Where where) {
  Layer layer({condition}, "cond", where);
  if (!layer.ok()) return {};
  State& state = layer.state();
  const auto branch = [&state](const std::function<VarRef()>& body) {
    return [&state, &body]() -> StatusOr<std::string> {
      const VarRef value = body();
      MILLRACE_RETURN_IF_ERROR(state.status);
      if (!value.ok()) return InvalidArgument("branch: expected a var, found none");
      return value.name();
    };
  };
  StatusOr<std::string> chosen =
      ops::add_choice(*state.builder, condition.name(), branch(if_true), branch(if_false));
  if (!chosen.ok()) return layer.fail(std::move(chosen).status());
  return {&state, *chosen};
}

std::pair<VarRef, VarRef> recurrent(
    const Vars& sequences, const VarRef& start,
    const std::function<RecurrentStep(const Vars& elements, const VarRef& state)>& body,
    Where where) {
  Layer layer(with(start, sequences), "recurrent", where);
  if (!layer.ok()) return {};
  if (!start.ok() || sequences.empty()) {
    layer.fail(InvalidArgument("expected a start and at least one sequence"));
    return {};
  }
  State& state = layer.state();
  ops::Builder& builder = *state.builder;
  const auto declare = [&](const std::string& name, DType dtype, std::vector<int64_t> dims) {
    builder.block().declare(name, VarSpec::tensor(dtype, std::move(dims)));
    return VarRef(&state, name);
  };
  std::vector<std::vector<int64_t>> element_dims;
  for (const VarRef& sequence : sequences) {
    const std::vector<int64_t> dims = sequence.dims();
    if (dims.empty()) {
      layer.fail(
          InvalidArgument("'{}': expected time steps along dim 0, found rank 0", sequence.name()));
      return {};
    }
    element_dims.emplace_back(dims.begin() + 1, dims.end());
  }
  const std::vector<int64_t> start_dims = start.dims();
  Block& inner = builder.enter_block();
  Vars elements;
  // an element has the name of its sequence, which is hidden inside the body
  for (size_t i = 0; i < sequences.size(); ++i)
    elements.push_back(declare(sequences[i].name(), sequences[i].dtype(), element_dims[i]));
  const VarRef before = declare(builder.names().next("rnn_pre"), start.dtype(), start_dims);
  const RecurrentStep step = body(elements, before);
  std::vector<int64_t> dims[2];
  if (layer.ok()) {
    dims[0] = step.state.dims();
    dims[1] = step.out.dims();
  }
  builder.leave_block();
  if (!layer.ok()) return {};
  if (!step.state.ok() || !step.out.ok()) {
    layer.fail(InvalidArgument("body: expected a state and an out, found none"));
    return {};
  }
  const VarRef* const results[2] = {&step.state, &step.out};
  for (int k = 0; k < 2; ++k) {
    dims[k].insert(dims[k].begin(), -1);
    declare(results[k]->name(), results[k]->dtype(), dims[k]);
  }
  const std::string scopes = builder.names().next("rnn_scopes");
  builder.block().declare(scopes, VarSpec::shapeless(VarKind::kStepScopes));
  NewOp op("recurrent");
  op.input("inputs", frontend::names_of(sequences))
      .input("initial_states", {start.name()})
      .input("parameters", outside(inner, /*writes=*/false))
      .output("outputs", {step.out.name(), step.state.name()})
      .output("step_scopes", {scopes})
      .attr("ex_states", make_attr(std::vector<std::string>{before.name()}))
      .attr("states", make_attr(std::vector<std::string>{step.state.name()}))
      .attr("sub_block", AttrValue::of_block(inner.index()))
      .attr("has_states", make_attr(true))
      .attr("is_train", make_attr(true))
      .attr("reverse", make_attr(false));
  layer.append(op);
  if (!layer.ok()) return {};
  return {step.state, step.out};
}

VarRef array_write(const VarRef& x, const VarRef& i, const VarRef& array, Where where) {
  Layer layer(with(array, {x, i}), "array_write", where);
  if (!layer.ok()) return {};
  VarRef out = array;
  if (!out.ok()) {
    VarSpec spec = VarSpec::tensor(x.dtype(), {});
    spec.kind = VarKind::kLodTensorArray;
    spec.form = TensorForm::kTensorArray;
    const std::string name = layer.name() + ".out";
    layer.state().builder->block().declare(name, std::move(spec));
    out = {&layer.state(), name};
  }
  NewOp op("write_to_array");
  op.input("X", {x.name()}).input("I", {i.name()});
  return result_to(layer, std::move(op), x.dtype(), out);
}

VarRef array_read(const VarRef& array, const VarRef& i, Where where) {
  Layer layer({array, i}, "array_read", where);
  if (!layer.ok()) return {};
  NewOp op("read_from_array");
  op.input("X", {array.name()}).input("I", {i.name()});
  return layer.result(std::move(op), array.dtype());
}

Vars append(Network& net, const OpCall& call, Where where) {
  Vars inputs;
  for (const auto& [slot, vars] : call.inputs)
    inputs.insert(inputs.end(), vars.begin(), vars.end());
  Vars outs(call.outputs.size());
  for (const VarRef& input : inputs)
    if (!input.ok()) return outs;
  const std::string& kind = call.kind.empty() ? call.type : call.kind;
  Layer layer(state_of(net), kind.c_str(), where);
  if (!layer.ok()) return outs;
  if (layer.state().registry->find(call.type) == nullptr) {
    const std::string near = layer.state().registry->suggest(call.type);
    Status status = InvalidArgument("unknown op type");
    layer.fail(near.empty() ? status : std::move(status).with_hint("did you mean '" + near + "'?"));
    return outs;
  }
  NewOp op(call.type);
  for (const auto& [slot, vars] : call.inputs) op.input(slot, frontend::names_of(vars));
  for (size_t i = 0; i < outs.size(); ++i) {
    outs[i] = layer.out(inputs.empty() ? DType::kFloat32 : inputs.front().dtype());
    op.output(call.outputs[i], {outs[i].name()});
  }
  for (const auto& [name, value] : call.attrs)
    op.attr(name, std::visit([](const auto& v) { return make_attr(v); }, value));
  layer.append(op);
  return layer.ok() ? outs : Vars(call.outputs.size());
}

}  // namespace millrace::layers
