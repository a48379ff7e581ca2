// Layers for sequences (vars with LoD).
#include "framework/base/errors.h"
#include "frontend/layer.h"
#include "frontend/layers.h"

namespace millrace::layers {
namespace {

using frontend::Layer;
using ops::NewOp;

std::string upper_case(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

// Checks the last dim of a projected input: `hidden` columns for each gate.
Status check_gates(const Var& x, int64_t hidden, int64_t gates) {
  if (hidden > 0 && !x.dims().empty() && x.dims().back() == gates * hidden) return Ok();
  return InvalidArgument("'{}': expected {} columns, {} for each of {} gates, found [{}]",
                         x.name().str(), gates * hidden, hidden, gates,
                         fmt::join(x.dims().vec(), ", "));
}

// Declares the four outputs of a recurrent op.
Vars recurrent_outputs(Layer& layer, DType dtype) {
  Vars outs;
  for (int i = 0; i < 4; ++i) outs.push_back(layer.out(dtype));
  return outs;
}

// A recurrent op with its inputs.
NewOp recurrent_op(const char* type, const VarRef& x, const VarRef& w, const VarRef& b) {
  NewOp op(type);
  op.input("Input", {x.name()}).input("Weight", {w.name()}).input("Bias", {b.name()});
  return op;
}

}  // namespace

VarRef sequence_pool(const VarRef& x, const std::string& how, Where where) {
  Layer layer({x}, "sequence_pool", where);
  if (!layer.ok()) return {};
  const VarRef y = layer.out(x.dtype());
  const VarRef index = layer.out(DType::kInt32);
  NewOp op("sequence_pool");
  op.input("X", {x.name()})
      .output("Out", {y.name()})
      .output("MaxIndex", {index.name()})
      .attr("pooltype", make_attr(upper_case(how)));
  layer.append(op);
  layer.set_dtype(index, x.dtype());  // the original declares these indices with the dtype of x
  index.stop_gradient();
  return layer.ok() ? y : VarRef();
}

VarRef sequence_conv(const VarRef& x, int64_t filters, const SequenceConvOptions& options,
                     Where where) {
  Layer layer({x}, "sequence_conv", where, options.name);
  if (!layer.ok()) return {};
  const Var& var = layer.var(x);
  if (var.dims().size() != 2 || var.dims()[1] <= 0) {
    return layer.fail(InvalidArgument("'{}': expected [tokens, features], found [{}]", x.name(),
                                      fmt::join(var.dims().vec(), ", ")));
  }
  const VarRef w = layer.param(options.param, "w", {options.filter_size * var.dims()[1], filters},
                               var.dtype(), init::Xavier{});
  NewOp op("sequence_conv");
  op.input("X", {x.name()})
      .input("Filter", {w.name()})
      .attr("contextStride", make_attr(int32_t{1}))
      .attr("contextStart", make_attr(-options.filter_size / 2))
      .attr("contextLength", make_attr(options.filter_size));
  VarRef y = layer.result(std::move(op), var.dtype());
  if (options.has_bias) y = layer.add_bias(y, options.bias, filters, 1);
  return layer.activate(y, options.act);
}

std::pair<VarRef, VarRef> dynamic_lstm(const VarRef& x, int64_t hidden, const RnnOptions& options,
                                       Where where) {
  Layer layer({x}, "lstm", where, options.name);
  if (!layer.ok()) return {};
  const Var& var = layer.var(x);
  if (Status status = check_gates(var, hidden, 4); !status.ok()) {
    layer.fail(std::move(status));
    return {};
  }
  const VarRef w =
      layer.param(options.param, "w", {hidden, 4 * hidden}, var.dtype(), init::Xavier{});
  const VarRef b = layer.param(options.bias, "b", {1, (options.use_peepholes ? 7 : 4) * hidden},
                               var.dtype(), init::Constant{0});
  const Vars outs = recurrent_outputs(layer, var.dtype());
  if (!layer.ok()) return {};
  NewOp op = recurrent_op("lstm", x, w, b);
  op.output("Hidden", {outs[0].name()})
      .output("Cell", {outs[1].name()})
      .output("BatchGate", {outs[2].name()})
      .output("BatchCellPreAct", {outs[3].name()})
      .attr("use_peepholes", make_attr(options.use_peepholes))
      .attr("is_reverse", make_attr(options.is_reverse))
      .attr("gate_activation", make_attr(options.gate_activation))
      .attr("cell_activation", make_attr(options.cell_activation))
      .attr("candidate_activation", make_attr(options.candidate_activation));
  layer.append(op);
  if (!layer.ok()) return {};
  return {outs[0], outs[1]};
}

VarRef dynamic_gru(const VarRef& x, int64_t hidden, const RnnOptions& options, Where where) {
  Layer layer({x}, "gru", where, options.name);
  if (!layer.ok()) return {};
  const Var& var = layer.var(x);
  if (Status status = check_gates(var, hidden, 3); !status.ok())
    return layer.fail(std::move(status));
  const VarRef w =
      layer.param(options.param, "w", {hidden, 3 * hidden}, var.dtype(), init::Xavier{});
  const VarRef b = layer.param(options.bias, "b", {1, 3 * hidden}, var.dtype(), init::Constant{0});
  const Vars outs = recurrent_outputs(layer, var.dtype());
  if (!layer.ok()) return {};
  NewOp op = recurrent_op("gru", x, w, b);
  op.output("Hidden", {outs[0].name()})
      .output("BatchGate", {outs[1].name()})
      .output("BatchResetHiddenPrev", {outs[2].name()})
      .output("BatchHidden", {outs[3].name()})
      .attr("is_reverse", make_attr(options.is_reverse))
      .attr("gate_activation", make_attr(options.gate_activation))
      .attr("activation", make_attr(options.candidate_activation));
  layer.append(op);
  return layer.ok() ? outs[0] : VarRef();
}

}  // namespace millrace::layers
