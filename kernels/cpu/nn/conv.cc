#include "framework/op_attrs.h"
#include "kernels/cpu/matrix_product.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/adapted.h"
#include "kernels/cpu/nn/conv_pass.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

StatusOr<Kernel> conv_kernel(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex filter = op.input("Filter");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex residual = op.input("ResidualData");
  const ArgIndex output = op.output("Output");
  for (const ArgIndex arg : {input, filter, residual}) op.accept_layout(arg);
  const ConvAttrs attrs = read_conv_attrs(op);
  const auto pass = std::make_shared<ConvPass>(ConvPass::Kind::kForward, attrs);
  const ConvPass::Layouts layouts{!attrs.channels_last, op.is_persistable(filter), nullptr, false};
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor& out = ctx.out(output);
    if (out.numel() == 0) return Ok();
    Tensor* const summand = ctx.find_in(residual) == nullptr ? nullptr : &ctx.stored_in(residual);
    return pass->run(ctx.device(), {ctx.stored_in(input), ctx.stored_in(filter), out}, layouts,
                     ctx.find_in(bias), summand);
  });
}

// Arguments of a gradient op: operands and results.
struct ConvGradArgs {
  explicit ConvGradArgs(const KernelSetup& op)
      : input(op.input("Input")),
        filter(op.input("Filter")),
        output_grad(op.input("Output@GRAD")),
        input_grad(op.output("Input@GRAD")),
        filter_grad(op.output("Filter@GRAD")),
        bias_grad(op.output("Bias@GRAD")) {}
  ArgIndex input, filter, output_grad, input_grad, filter_grad, bias_grad;
};

// Both gradients of a convolution or of a transposed one.
struct ConvGradients {
  ConvGradients(const KernelSetup& op, const ConvAttrs& attrs)
      : args(op),
        transposed(attrs.transposed),
        free_layouts(!transposed && !attrs.channels_last),
        data(transposed ? ConvPass::Kind::kForward : ConvPass::Kind::kBackwardData, attrs),
        weights(ConvPass::Kind::kBackwardWeights, attrs) {
    for (const ArgIndex arg : {args.input, args.filter, args.output_grad}) op.accept_layout(arg);
  }

  Status run(const KernelContext& ctx);

  ConvGradArgs args;
  bool transposed;
  bool free_layouts;  // images may be in the layout of the library
  ConvPass data;
  ConvPass weights;
};

Status ConvGradients::run(const KernelContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.input, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const w, needed(ctx, args.filter, "Filter"));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, args.input_grad, *x));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dw, result_like(ctx, args.filter_grad, *w));
  const Tensor* const dy = ctx.find_in(args.output_grad);
  if (dy == nullptr || dy->numel() == 0) {
    if (dx != nullptr) fill_zero(*dx);
    if (dw != nullptr) fill_zero(*dw);
    return Ok();
  }
  Tensor& x_in = ctx.stored_in(args.input);
  Tensor& w_in = ctx.stored_in(args.filter);
  Tensor& dy_in = ctx.stored_in(args.output_grad);
  const ConvPass::Layouts images{free_layouts, false, nullptr, false};
  // in the layout of the filter, so that an update reads both in the same order
  const ConvPass::Layouts filters{false, false, w->layout(), false};
  if (dx != nullptr && dx->numel() > 0) {
    MILLRACE_RETURN_IF_ERROR(transposed ? data.run(ctx.device(), {dy_in, w_in, *dx}, images)
                                        : data.run(ctx.device(), {*dx, w_in, dy_in}, images));
  }
  if (dw == nullptr || dw->numel() == 0) return Ok();
  return transposed ? weights.run(ctx.device(), {dy_in, *dw, x_in}, filters)
                    : weights.run(ctx.device(), {x_in, *dw, dy_in}, filters);
}

StatusOr<Kernel> conv_grad_kernel(const KernelSetup& op) {
  const ConvAttrs attrs = read_conv_attrs(op);
  const auto gradients = std::make_shared<ConvGradients>(op, attrs);
  return Kernel([gradients, last = attrs.channels_last](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(gradients->run(ctx));
    Tensor* const db = ctx.find_out(gradients->args.bias_grad);
    if (db == nullptr) return Ok();
    const Tensor* const dy = ctx.find_in(gradients->args.output_grad);
    if (dy == nullptr) {
      fill_zero(*db);
      return Ok();
    }
    MILLRACE_RETURN_IF_ERROR(bring_to_plain(ctx, {gradients->args.output_grad}));
    return sum_channels(*dy, *db, last);
  });
}

// A transposed convolution is the gradient of a convolution with the same filter.
ConvAttrs read_transposed_attrs(const KernelSetup& op) {
  ConvAttrs attrs = read_conv_attrs(op);
  // The three-dimensional op uses NDHWC for NCDHW.
  attrs.channels_last = op.attr<std::string>("data_format") == "NHWC";
  attrs.transposed = true;
  return attrs;
}

StatusOr<Kernel> conv_transpose(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex filter = op.input("Filter");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex output = op.output("Output");
  const ConvAttrs attrs = read_transposed_attrs(op);
  const auto pass = std::make_shared<ConvPass>(ConvPass::Kind::kBackwardData, attrs);
  return Kernel([=, last = attrs.channels_last](const KernelContext& ctx) -> Status {
    Tensor& out = ctx.out(output);
    if (out.numel() == 0) return Ok();
    MILLRACE_RETURN_IF_ERROR(
        pass->run(ctx.device(), {out, ctx.stored_in(filter), ctx.stored_in(input)}, {}));
    const Tensor* const summand = ctx.find_in(bias);
    return summand == nullptr ? Ok() : add_channel_bias(out, *summand, last);
  });
}

StatusOr<Kernel> conv_transpose_grad(const KernelSetup& op) {
  const auto gradients = std::make_shared<ConvGradients>(op, read_transposed_attrs(op));
  return Kernel([gradients](const KernelContext& ctx) { return gradients->run(ctx); });
}

// Programs for GPUs may have an attribute that puts a relu before the convolution. It is not in the
// schema, because millrace does not write it.
template <KernelMaker kMaker>
StatusOr<Kernel> conv_or_behind_relu(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Kernel kernel, kMaker(op));
  const bool relu = get_attr_or<bool>(op.op(), "fuse_relu_before_depthwise_conv", false);
  return relu ? behind_relu(op, std::move(kernel)) : kernel;
}

}  // namespace

ConvAttrs read_conv_attrs(const KernelSetup& op) {
  ConvAttrs attrs;
  attrs.window = read_window_attrs(op);
  attrs.groups = op.attr<int64_t>("groups");
  attrs.channels_last = channels_last(op, "data_format");
  attrs.bf16 = wants_bf16(op);
  return attrs;
}

void add_nn_conv(KernelRegistry& registry) {
  for (const char* const type : {"conv2d", "depthwise_conv2d", "conv3d"})
    registry.add(type, in_float<conv_or_behind_relu<conv_kernel>>);
  for (const char* const type : {"conv2d_grad", "depthwise_conv2d_grad", "conv3d_grad"})
    registry.add(type, in_float<conv_or_behind_relu<conv_grad_kernel>>);
  for (const char* const type :
       {"conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose"})
    registry.add(type, in_float<conv_transpose>);
  for (const char* const type :
       {"conv2d_transpose_grad", "depthwise_conv2d_transpose_grad", "conv3d_transpose_grad"})
    registry.add(type, in_float<conv_transpose_grad>);
}

}  // namespace millrace::kernels
