#include "kernels/cpu/gradient.h"
#include "kernels/cpu/nn/channel_moments.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace affine_channel_kernels {
namespace {

StatusOr<Kernel> affine_channel(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex scale = op.input("Scale");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex out = op.output("Out");
  return Kernel([=, last = channels_last(op, "data_layout")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    const ChannelLayout l(in->dims(), last);
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(const T* const factors,
                                needed_values<T>(ctx, scale, "Scale", l.channels));
      MILLRACE_ASSIGN_OR_RETURN(const T* const summands,
                                needed_values<T>(ctx, bias, "Bias", l.channels));
      const T* const from = in->data<T>();
      T* const to = ctx.out(out).data<T>();
      l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
        map_channel_range(l, begin, end, to, [=](int64_t c) {
          return [from, times = factors[c], plus = summands[c]](int64_t at) {
            return from[at] * times + plus;
          };
        });
      });
      return Ok();
    });
  });
}

struct AffineChannelGradArgs {
  ArgIndex x, scale, dout, dx, dscale, dbias;
};

template <typename T>
Status run_gradient(const KernelContext& ctx, const AffineChannelGradArgs& args,
                    const ChannelLayout& l) {
  const T* const dout = ctx.find_in(args.dout)->data<T>();
  if (ctx.find_out(args.dx) != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, args.dx, *ctx.find_in(args.dout)));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const scale, needed(ctx, args.scale, "Scale"));
    MILLRACE_ASSIGN_OR_RETURN(const T* const factors,
                              channel_values<T>(scale, "Scale", l.channels));
    T* const to = dx->data<T>();
    l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
      map_channel_range(l, begin, end, to, [=](int64_t c) {
        return [dout, times = factors[c]](int64_t at) { return dout[at] * times; };
      });
    });
  }
  MILLRACE_ASSIGN_OR_RETURN(
      T* const dscale, channel_results<T>(ctx.find_out(args.dscale), "Scale@GRAD", l.channels));
  MILLRACE_ASSIGN_OR_RETURN(T* const dbias,
                            channel_results<T>(ctx.find_out(args.dbias), "Bias@GRAD", l.channels));
  const T* x = nullptr;
  if (dscale != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, args.x, "X"));
    MILLRACE_RETURN_IF_ERROR(check_alike(*in, "X", *ctx.find_in(args.dout), "Out@GRAD"));
    x = in->data<T>();
  }
  l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
    if (dbias != nullptr) {
      sum_channel_range(l, begin, end, dbias,
                        [dout](int64_t) { return [dout](int64_t at) { return dout[at]; }; });
    }
    if (dscale != nullptr) {
      sum_channel_range(l, begin, end, dscale, [dout, x](int64_t) {
        return [dout, x](int64_t at) { return dout[at] * x[at]; };
      });
    }
  });
  return Ok();
}

StatusOr<Kernel> affine_channel_grad(const KernelSetup& op) {
  const AffineChannelGradArgs args{op.input("X"),           op.input("Scale"),
                                   op.input("Out@GRAD"),    op.output("X@GRAD"),
                                   op.output("Scale@GRAD"), op.output("Bias@GRAD")};
  return Kernel([=, last = channels_last(op, "data_layout")](const KernelContext& ctx) -> Status {
    const Tensor* const dout = ctx.find_in(args.dout);
    if (dout == nullptr) return zero_results(ctx, {args.dx, args.dscale, args.dbias});
    if (dout->rank() < 2) return ctx.error("Out@GRAD must hold images, found {}", describe(*dout));
    return dispatch<FloatTypes>(dout->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return run_gradient<T>(ctx, args, ChannelLayout(dout->dims(), last));
    });
  });
}

}  // namespace
}  // namespace affine_channel_kernels

void add_nn_affine_channel(KernelRegistry& registry) {
  using namespace affine_channel_kernels;
  registry.add("affine_channel", affine_channel);
  registry.add("affine_channel_grad", affine_channel_grad);
}

}  // namespace millrace::kernels
