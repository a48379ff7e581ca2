// Losses and metrics.
#include "framework/base/errors.h"
#include "frontend/layer.h"
#include "frontend/layers.h"

namespace millrace::layers {
namespace {

using frontend::Layer;
using ops::NewOp;

}  // namespace

VarRef cross_entropy(const VarRef& x, const VarRef& label, bool soft_label, Where where) {
  Layer layer({x, label}, "cross_entropy", where);
  if (!layer.ok()) return {};
  NewOp op("cross_entropy");
  op.input("X", {x.name()})
      .input("Label", {label.name()})
      .attr("soft_label", make_attr(soft_label));
  return layer.result(std::move(op), x.dtype(), "Y");
}

VarRef softmax_with_cross_entropy(const VarRef& logits, const VarRef& label, bool soft_label,
                                  Where where) {
  Layer layer({logits, label}, "softmax_with_cross_entropy", where);
  if (!layer.ok()) return {};
  const VarRef softmax = layer.out(logits.dtype());
  NewOp op("softmax_with_cross_entropy");
  op.input("Logits", {logits.name()})
      .input("Label", {label.name()})
      .output("Softmax", {softmax.name()})
      .attr("soft_label", make_attr(soft_label));
  return layer.result(std::move(op), logits.dtype(), "Loss");
}

VarRef sigmoid_cross_entropy_with_logits(const VarRef& x, const VarRef& label, Where where) {
  Layer layer({x, label}, "sigmoid_cross_entropy_with_logits", where);
  if (!layer.ok()) return {};
  NewOp op("sigmoid_cross_entropy_with_logits");
  op.input("X", {x.name()}).input("Label", {label.name()});
  return layer.result(std::move(op), x.dtype());
}

VarRef square_error_cost(const VarRef& x, const VarRef& y, Where where) {
  Layer layer({x, y}, "square_error_cost", where);
  if (!layer.ok()) return {};
  NewOp minus("elementwise_sub");
  minus.input("X", {x.name()}).input("Y", {y.name()});
  const VarRef difference = layer.result(std::move(minus), x.dtype());
  return layer.activate(difference, "square");
}

VarRef accuracy(const VarRef& x, const VarRef& label, int32_t k, Where where) {
  Layer best({x}, "top_k", where);
  if (!best.ok()) return {};
  const VarRef values = best.out(x.dtype());
  const VarRef indices = best.out(DType::kInt64);
  NewOp top("top_k");
  top.input("X", {x.name()})
      .output("Out", {values.name()})
      .output("Indices", {indices.name()})
      .attr("k", make_attr(k));
  best.append(top);
  if (!best.ok()) return {};
  Layer layer({values, indices, label}, "accuracy", where);
  if (!layer.ok()) return {};
  const VarRef share = layer.out();
  const VarRef correct = layer.out(DType::kInt32);
  const VarRef total = layer.out(DType::kInt32);
  NewOp op("accuracy");
  op.input("Out", {values.name()})
      .input("Indices", {indices.name()})
      .input("Label", {label.name()})
      .output("Accuracy", {share.name()})
      .output("Correct", {correct.name()})
      .output("Total", {total.name()});
  layer.append(op);
  share.stop_gradient();
  return layer.ok() ? share : VarRef();
}

VarRef mean(const VarRef& x, Where where) {
  Layer layer({x}, "mean", where);
  if (!layer.ok()) return {};
  NewOp op("mean");
  op.input("X", {x.name()});
  return layer.result(std::move(op), x.dtype());
}

}  // namespace millrace::layers
