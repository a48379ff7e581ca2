// Layers for images, and dropout.
#include <cmath>

#include "framework/base/errors.h"
#include "frontend/layer.h"
#include "frontend/layers.h"

namespace millrace::layers {
namespace {

using frontend::Layer;
using ops::NewOp;

template <typename T>
Status check_pair(const char* option, const std::vector<T>& values) {
  if (values.size() == 2) return Ok();
  return InvalidArgument("{}: expected 2 numbers, found {}", option, values.size());
}

}  // namespace

VarRef conv2d(const VarRef& x, int64_t filters, std::vector<int64_t> size,
              const Conv2dOptions& options, Where where) {
  Layer layer({x}, "conv2d", where, options.name);
  if (!layer.ok()) return {};
  const Var& var = layer.var(x);
  if (Status status = check_pair("size", size); !status.ok()) return layer.fail(std::move(status));
  if (var.dims().size() != 4 || var.dims()[1] <= 0 || options.groups < 1 ||
      var.dims()[1] % options.groups != 0) {
    return layer.fail(InvalidArgument(
        "'{}': expected [batch, channels, height, width] with channels in {} groups, found [{}]",
        x.name(), options.groups, fmt::join(var.dims().vec(), ", ")));
  }
  const int64_t channels = var.dims()[1] / options.groups;
  const double seen = static_cast<double>(var.dims()[1] * size[0] * size[1]);
  const VarRef w = layer.param(options.param, "w", {filters, channels, size[0], size[1]},
                               var.dtype(), init::Normal{0, std::sqrt(2.0 / seen)});
  NewOp op("conv2d");
  op.input("Input", {x.name()})
      .input("Filter", {w.name()})
      .attr("strides", make_attr(options.stride))
      .attr("paddings", make_attr(options.padding))
      .attr("dilations", make_attr(options.dilation))
      .attr("groups", make_attr(options.groups))
      .attr("data_format", make_attr("NCHW"));
  VarRef y = layer.result(std::move(op), var.dtype(), "Output");
  if (options.has_bias) y = layer.add_bias(y, options.bias, filters, 1);
  return layer.activate(y, options.act, /*library=*/true);
}

VarRef pool2d(const VarRef& x, std::vector<int32_t> size, const Pool2dOptions& options,
              Where where) {
  Layer layer({x}, "pool2d", where);
  if (!layer.ok()) return {};
  if (Status status = check_pair("size", size); !status.ok()) return layer.fail(std::move(status));
  if (options.type != "max" && options.type != "avg") {
    return layer.fail(
        InvalidArgument("type: expected \"max\" or \"avg\", found \"{}\"", options.type));
  }
  NewOp op("pool2d");
  op.input("X", {x.name()})
      .attr("pooling_type", make_attr(options.type))
      .attr("ksize", make_attr(std::move(size)))
      .attr("strides", make_attr(options.stride))
      .attr("paddings", make_attr(options.padding))
      .attr("global_pooling", make_attr(options.global_pooling))
      .attr("ceil_mode", make_attr(options.ceil_mode))
      .attr("exclusive", make_attr(options.exclusive))
      .attr("use_cudnn", make_attr(true));
  return layer.result(std::move(op), x.dtype());
}

VarRef dropout(const VarRef& x, double probability, const DropoutOptions& options, Where where) {
  Layer layer({x}, "dropout", where);
  if (!layer.ok()) return {};
  const VarRef y = layer.out(x.dtype());
  const VarRef mask = layer.out(DType::kUint8);
  mask.stop_gradient();
  NewOp op("dropout");
  op.input("X", {x.name()})
      .output("Out", {y.name()})
      .output("Mask", {mask.name()})
      .attr("dropout_prob", make_attr(static_cast<float>(probability)))
      .attr("is_test", make_attr(options.is_test))
      .attr("fix_seed", make_attr(options.seed != 0))
      .attr("seed", make_attr(options.seed))
      .attr("dropout_implementation",
            make_attr(options.upscale_in_train ? "upscale_in_train" : "downgrade_in_infer"));
  layer.append(op);
  return layer.ok() ? y : VarRef();
}

}  // namespace millrace::layers
