#include <string>

#include "kernels/cpu/nn/window.h"
#include "kernels/gpu/ops/broadcast.h"
#include "kernels/registry.h"

// prelu, affine_channel, lrn and maxout.
namespace millrace::gpu {
namespace channels {
namespace {

// Dims of images [batch, channels, ...], or with the channels last.
StatusOr<ChannelDims> channel_dims(const Tensor& x, bool last) {
  if (x.rank() < 2 || x.numel() == 0) return refuse("X {}", describe(x));
  const int64_t count = last ? x.dims().back() : x.dim(1);
  return ChannelDims{count, last ? 1 : x.numel() / (x.dim(0) * count)};
}

// The gradient of X or of Y by a formula; a null result is not wanted.
template <typename Formula, bool kOfY>
Status slope(Device& device, const Broadcast& paired, const Tensor& x, const Tensor& y,
             const Tensor& dout, Tensor* to) {
  if (to == nullptr || to->numel() == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const Repetitions r, repetitions_of(paired, kOfY));
  if (r.each > 1) {
    const BinarySlopeSum<Formula, kOfY> sum{floats(x), floats(y), floats(dout), floats(to),
                                            r.kept,    r.gone,    r.each};
    return r.side_by_side ? lanes(device, sum, to->numel()) : rows(device, sum, to->numel());
  }
  MILLRACE_ASSIGN_OR_RETURN(const Walk<2> walk, paired.walk());
  const BinarySlope<Formula, kOfY> one{floats(x), floats(y), floats(dout), floats(to), walk};
  return each(device, one, to->numel());
}

// How prelu pairs elements with slopes.
StatusOr<Broadcast> pair_slopes(const std::string& mode, bool last, const Tensor& x,
                                const Tensor& alpha) {
  MILLRACE_RETURN_IF_ERROR(all_floats({&x, &alpha}));
  if (x.rank() < 2 || x.numel() == 0) return refuse("X {}", describe(x));
  const int64_t row = x.numel() / x.dim(0);
  const int64_t count = mode == "all"       ? 1
                        : mode != "channel" ? row
                        : last              ? x.dims().back()
                                            : x.dim(1);
  if (alpha.numel() != count) return refuse("Alpha {}", describe(alpha));
  const int64_t inner = mode == "channel" && !last ? row / count : 1;
  return broadcast_of({x.numel() / (count * inner), count, inner}, {1, count, 1}, -1);
}

struct PreluArgs {
  explicit PreluArgs(const KernelSetup& op)
      : device(device_of(op)),
        mode(op.attr<std::string>("mode")),
        last(op.attr<std::string>("data_format") == "NHWC"),
        x(op.input("X")),
        alpha(op.input("Alpha")) {}
  Device& device;
  std::string mode;
  bool last;
  ArgIndex x, alpha;
};

StatusOr<Kernel> prelu(const KernelSetup& op) {
  return Kernel([args = PreluArgs(op), out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, args.x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const alpha, needed_here(ctx, args.alpha, "Alpha"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *x));
    MILLRACE_ASSIGN_OR_RETURN(const Broadcast paired,
                              pair_slopes(args.mode, args.last, *x, *alpha));
    MILLRACE_ASSIGN_OR_RETURN(const Walk<2> walk, paired.walk());
    return each(args.device, gpu::Binary<Prelu, float>{floats(x), floats(alpha), floats(to), walk},
                x->numel());
  });
}

StatusOr<Kernel> prelu_grad(const KernelSetup& op) {
  return Kernel([args = PreluArgs(op), dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
                 dalpha = op.output("Alpha@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g, float_gradient(ctx, args.x, "X", dout, dx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const alpha, needed_here(ctx, args.alpha, "Alpha"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_alpha, output_like(ctx, dalpha, *alpha));
    if (g.dy->dims() != g.y->dims()) return refuse("Out@GRAD {}", describe(*g.dy));
    MILLRACE_RETURN_IF_ERROR(all_floats({g.dy}));
    MILLRACE_ASSIGN_OR_RETURN(const Broadcast paired,
                              pair_slopes(args.mode, args.last, *g.y, *alpha));
    // before the gradient of X, which may share memory with the incoming one
    MILLRACE_RETURN_IF_ERROR(
        (slope<Prelu, true>(args.device, paired, *g.y, *alpha, *g.dy, to_alpha)));
    return slope<Prelu, false>(args.device, paired, *g.y, *alpha, *g.dy, g.dx);
  });
}

// Vectors with one number for each channel.
Status expect_vectors(int64_t count, std::initializer_list<const Tensor*> vectors) {
  for (const Tensor* const v : vectors) {
    if (v != nullptr && v->numel() != count)
      return refuse("{} channels and a vector {}", count, describe(*v));
  }
  return all_floats(vectors);
}

StatusOr<Kernel> affine(const KernelSetup& op) {
  return Kernel([args = FloatArgs(op), scale = op.input("Scale"), bias = op.input("Bias"),
                 last = kernels::channels_last(op, "data_layout")](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands o, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const factors, needed_here(ctx, scale, "Scale"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const summands, needed_here(ctx, bias, "Bias"));
    MILLRACE_ASSIGN_OR_RETURN(const ChannelDims dims, channel_dims(*o.x, last));
    MILLRACE_RETURN_IF_ERROR(expect_vectors(dims.channels, {factors, summands}));
    return each(args.device,
                ScaleChannels{dims, floats(o.x), floats(factors), floats(summands), floats(o.out)},
                o.x->numel());
  });
}

StatusOr<Kernel> affine_grad(const KernelSetup& op) {
  return Kernel(
      [&device = device_of(op), x = op.input("X"), scale = op.input("Scale"),
       dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"), dscale = op.output("Scale@GRAD"),
       dbias = op.output("Bias@GRAD"),
       last = kernels::channels_last(op, "data_layout")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dy, needed_here(ctx, dout, "Out@GRAD"));
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const factors, needed_here(ctx, scale, "Scale"));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *dy));
        MILLRACE_ASSIGN_OR_RETURN(const ChannelDims dims, channel_dims(*dy, last));
        Tensor* const to_scale = ctx.find_out(dscale);
        Tensor* const to_bias = ctx.find_out(dbias);
        MILLRACE_RETURN_IF_ERROR(expect_vectors(dims.channels, {factors, to_scale, to_bias}));
        const Tensor* const from = to_scale == nullptr ? dy : ctx.find_in(x);
        if (from == nullptr || from->dims() != dy->dims()) return refuse("X does not fit");
        MILLRACE_RETURN_IF_ERROR(all_floats({dy, from}));
        MILLRACE_ASSIGN_OR_RETURN(
            const Broadcast paired,
            broadcast_of({dy->numel() / (dims.channels * dims.inner), dims.channels, dims.inner},
                         {1, dims.channels, 1}, -1));
        MILLRACE_RETURN_IF_ERROR(
            (slope<Multiply, true>(device, paired, *from, *factors, *dy, to_scale)));
        MILLRACE_RETURN_IF_ERROR((slope<Add, true>(device, paired, *dy, *factors, *dy, to_bias)));
        return slope<Multiply, false>(device, paired, *dy, *factors, *dy, to);
      });
}

struct ResponseAttrs {
  int64_t half;
  float k;
  float alpha;
  float beta;
  bool last;
};
ResponseAttrs read_response(const KernelSetup& op) {
  return {op.attr<int64_t>("n") / 2, op.attr<float>("k"), op.attr<float>("alpha"),
          op.attr<float>("beta"), kernels::channels_last(op, "data_format")};
}

StatusOr<Kernel> lrn(const KernelSetup& op) {
  return Kernel([attrs = read_response(op), args = FloatArgs(op),
                 mid = op.output("MidOut")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands o, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const sums, output_like(ctx, mid, *o.x));
    MILLRACE_ASSIGN_OR_RETURN(const ChannelDims dims, channel_dims(*o.x, attrs.last));
    return each(args.device,
                NormalizeResponse{dims, floats(o.x), floats(o.out), floats(sums), attrs.half,
                                  attrs.k, attrs.alpha, attrs.beta},
                o.x->numel());
  });
}

StatusOr<Kernel> lrn_grad(const KernelSetup& op) {
  return Kernel([attrs = read_response(op), &device = device_of(op), x = op.input("X"),
                 out = op.input("Out"), mid = op.input("MidOut"), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g, float_gradient(ctx, x, "X", dout, dx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, out, "Out"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const sums, needed_here(ctx, mid, "MidOut"));
    if (g.dx == nullptr) return Ok();
    for (const Tensor* const image : {g.dy, y, sums}) {
      if (image->dims() != g.y->dims()) return refuse("an image is {}", describe(*image));
    }
    MILLRACE_RETURN_IF_ERROR(all_floats({y, sums}));
    if (g.dx->raw() == g.dy->raw()) return refuse("X@GRAD is Out@GRAD");
    MILLRACE_ASSIGN_OR_RETURN(const ChannelDims dims, channel_dims(*g.y, attrs.last));
    return each(device,
                NormalizeResponseBack{dims, floats(g.y), floats(y), floats(sums), floats(g.dy),
                                      floats(g.dx), attrs.half, attrs.alpha, attrs.beta},
                g.dx->numel());
  });
}

// The functor of maxout without pointers; axis may count from the end.
StatusOr<LargestOfChannels> largest_of(const Tensor& x, int64_t axis, int64_t groups) {
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.rank()) : axis);
  if (at >= x.rank() || groups < 1 || x.dims()[at] % groups != 0)
    return refuse("{} groups of {}", groups, describe(x));
  LargestOfChannels largest{};
  largest.groups = groups;
  largest.inner = 1;
  for (const int64_t dim : x.dims().drop_front(at + 1)) largest.inner *= dim;
  return largest;
}

StatusOr<Kernel> maxout(const KernelSetup& op) {
  return Kernel([args = FloatArgs(op), axis = op.attr<int64_t>("axis"),
                 groups = op.attr<int64_t>("groups")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands o, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(LargestOfChannels largest, largest_of(*o.x, axis, groups));
    if (o.out->numel() * groups != o.x->numel()) return refuse("Out {}", describe(*o.out));
    largest.x = floats(o.x);
    largest.y = floats(o.out);
    return each(args.device, largest, o.out->numel());
  });
}

StatusOr<Kernel> maxout_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.input("Out"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
                 axis = op.attr<int64_t>("axis"),
                 groups = op.attr<int64_t>("groups")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g, float_gradient(ctx, x, "X", dout, dx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, out, "Out"));
    if (g.dx == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(LargestOfChannels largest, largest_of(*g.y, axis, groups));
    MILLRACE_RETURN_IF_ERROR(all_floats({y}));
    if (y->numel() * groups != g.y->numel() || g.dy->numel() != y->numel())
      return refuse("Out {}", describe(*y));
    largest.x = floats(g.y);
    largest.y = const_cast<float*>(floats(y));
    largest.dy = floats(g.dy);
    largest.dx = floats(g.dx);
    return each(device, largest, y->numel());
  });
}

}  // namespace
}  // namespace channels

void add_channels(KernelRegistry& registry) {
  using namespace channels;
  registry.add("prelu", prelu);
  registry.add("prelu_grad", prelu_grad);
  registry.add("affine_channel", affine);
  registry.add("affine_channel_grad", affine_grad);
  registry.add("lrn", lrn);
  registry.add("lrn_grad", lrn_grad);
  registry.add("maxout", maxout);
  registry.add("maxout_grad", maxout_grad);
}

}  // namespace millrace::gpu
