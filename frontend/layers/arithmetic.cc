// Ops of one or two tensors, and ops that change a shape.
#include "framework/base/errors.h"
#include "frontend/layer.h"
#include "frontend/layers.h"

namespace millrace::layers {
namespace {

using frontend::Layer;
using ops::NewOp;

VarRef binary(const char* type, const VarRef& x, const VarRef& y, int32_t axis, Where where) {
  Layer layer({x, y}, type, where);
  if (!layer.ok()) return {};
  NewOp op(type);
  op.input("X", {x.name()}).input("Y", {y.name()}).attr("axis", make_attr(axis));
  return layer.result(std::move(op), x.dtype());
}

VarRef reduce(const char* type, const VarRef& x, std::vector<int32_t> dims, bool keep_dim,
              Where where) {
  Layer layer({x}, type, where);
  if (!layer.ok()) return {};
  const bool all = dims.empty();
  NewOp op(type);
  op.input("X", {x.name()})
      .attr("dim", make_attr(all ? std::vector<int32_t>{0} : std::move(dims)))
      .attr("keep_dim", make_attr(keep_dim))
      .attr("reduce_all", make_attr(all));
  return layer.result(std::move(op), x.dtype());
}

// For ops of 2.x that also output the shape of x for their gradient.
VarRef with_x_shape(Layer& layer, NewOp op, const VarRef& x) {
  const VarRef y = layer.out(x.dtype());
  const VarRef x_shape = layer.out(x.dtype());
  if (!layer.ok()) return {};
  op.input("X", {x.name()}).output("Out", {y.name()}).output("XShape", {x_shape.name()});
  layer.append(op);
  return layer.ok() ? y : VarRef();
}

}  // namespace

VarRef unary(const std::string& type, const VarRef& x, Where where) {
  if (!x.ok()) return {};
  Layer layer({x}, type.c_str(), where);
  return layer.activate(x, type);
}
VarRef relu(const VarRef& x, Where where) {
  return unary("relu", x, where);
}
VarRef sigmoid(const VarRef& x, Where where) {
  return unary("sigmoid", x, where);
}
VarRef tanh(const VarRef& x, Where where) {
  return unary("tanh", x, where);
}
VarRef square(const VarRef& x, Where where) {
  return unary("square", x, where);
}
VarRef exp(const VarRef& x, Where where) {
  return unary("exp", x, where);
}
VarRef log(const VarRef& x, Where where) {
  return unary("log", x, where);
}
VarRef sqrt(const VarRef& x, Where where) {
  return unary("sqrt", x, where);
}
VarRef abs(const VarRef& x, Where where) {
  return unary("abs", x, where);
}
VarRef gelu(const VarRef& x, Where where) {
  return unary("gelu", x, where);
}

VarRef softmax(const VarRef& x, int32_t axis, Where where) {
  Layer layer({x}, "softmax", where);
  if (!layer.ok()) return {};
  NewOp op("softmax");
  op.input("X", {x.name()}).attr("axis", make_attr(axis));
  return layer.result(std::move(op), x.dtype());
}

VarRef elementwise_add(const VarRef& x, const VarRef& y, int32_t axis, Where where) {
  return binary("elementwise_add", x, y, axis, where);
}
VarRef elementwise_sub(const VarRef& x, const VarRef& y, int32_t axis, Where where) {
  return binary("elementwise_sub", x, y, axis, where);
}
VarRef elementwise_mul(const VarRef& x, const VarRef& y, int32_t axis, Where where) {
  return binary("elementwise_mul", x, y, axis, where);
}
VarRef elementwise_div(const VarRef& x, const VarRef& y, int32_t axis, Where where) {
  return binary("elementwise_div", x, y, axis, where);
}
VarRef elementwise_max(const VarRef& x, const VarRef& y, int32_t axis, Where where) {
  return binary("elementwise_max", x, y, axis, where);
}
VarRef elementwise_min(const VarRef& x, const VarRef& y, int32_t axis, Where where) {
  return binary("elementwise_min", x, y, axis, where);
}

VarRef matmul(const VarRef& x, const VarRef& y, const MatmulOptions& options, Where where) {
  Layer layer({x, y}, "matmul", where);
  if (!layer.ok()) return {};
  NewOp op("matmul");
  op.input("X", {x.name()})
      .input("Y", {y.name()})
      .attr("transpose_X", make_attr(options.transpose_x))
      .attr("transpose_Y", make_attr(options.transpose_y))
      .attr("alpha", make_attr(static_cast<float>(options.alpha)));
  return layer.result(std::move(op), x.dtype());
}

VarRef scale(const VarRef& x, double factor, double bias, Where where) {
  Layer layer({x}, "scale", where);
  if (!layer.ok()) return {};
  NewOp op("scale");
  op.input("X", {x.name()})
      .attr("scale", make_attr(static_cast<float>(factor)))
      .attr("bias", make_attr(static_cast<float>(bias)));
  return layer.result(std::move(op), x.dtype());
}

VarRef sums(const Vars& xs, Where where) {
  Layer layer(xs, "sum", where);
  if (!layer.ok()) return {};
  NewOp op("sum");
  op.input("X", frontend::names_of(xs));
  return layer.result(std::move(op), xs.front().dtype());
}

VarRef reduce_sum(const VarRef& x, std::vector<int32_t> dims, bool keep_dim, Where where) {
  return reduce("reduce_sum", x, std::move(dims), keep_dim, where);
}
VarRef reduce_mean(const VarRef& x, std::vector<int32_t> dims, bool keep_dim, Where where) {
  return reduce("reduce_mean", x, std::move(dims), keep_dim, where);
}

VarRef concat(const Vars& xs, int32_t axis, Where where) {
  Layer layer(xs, "concat", where);
  if (!layer.ok()) return {};
  NewOp op("concat");
  op.input("X", frontend::names_of(xs)).attr("axis", make_attr(axis));
  return layer.result(std::move(op), xs.front().dtype());
}

VarRef reshape(const VarRef& x, std::vector<int32_t> shape, Where where) {
  Layer layer({x}, "reshape2", where);
  if (!layer.ok()) return {};
  NewOp op("reshape2");
  op.attr("shape", make_attr(std::move(shape)));
  return with_x_shape(layer, std::move(op), x);
}

VarRef transpose(const VarRef& x, std::vector<int32_t> order, Where where) {
  Layer layer({x}, "transpose", where);
  if (!layer.ok()) return {};
  NewOp op("transpose2");
  op.attr("axis", make_attr(std::move(order)));
  return with_x_shape(layer, std::move(op), x);
}

VarRef cast(const VarRef& x, DType dtype, Where where) {
  Layer layer({x}, "cast", where);
  if (!layer.ok()) return {};
  NewOp op("cast");
  op.input("X", {x.name()})
      .attr("in_dtype", make_attr(static_cast<int32_t>(x.dtype())))
      .attr("out_dtype", make_attr(static_cast<int32_t>(dtype)));
  return layer.result(std::move(op), dtype);
}

}  // namespace millrace::layers
