#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// softmax and log_softmax along any dim.
namespace millrace::gpu {
namespace {

// A tensor around the dim: [outer, columns, inner].
struct SoftmaxDims {
  int64_t outer = 1;
  int64_t columns = 1;
  int64_t inner = 1;
};

StatusOr<SoftmaxDims> softmax_dims(const Tensor& x, int64_t axis) {
  const auto rank = static_cast<int64_t>(x.rank());
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank || x.numel() == 0) return refuse("axis {} of {}", axis, describe(x));
  SoftmaxDims dims;
  for (int64_t i = 0; i < rank; ++i)
    (i < at ? dims.outer : i == at ? dims.columns : dims.inner) *= x.dim(i);
  return dims;
}

template <typename Functor>
Status run_softmax(Device& device, const Functor& functor, const SoftmaxDims& dims) {
  const int64_t count = dims.outer * dims.inner;
  return dims.inner > 1 ? lanes(device, functor, count) : rows(device, functor, count);
}

template <bool kLogarithm>
StatusOr<Kernel> forward_softmax(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
    if (to == nullptr) return refuse("Out is missing");
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    MILLRACE_ASSIGN_OR_RETURN(const SoftmaxDims dims, softmax_dims(*from, axis));
    return run_softmax(
        device, gpu::Softmax{floats(from), floats(to), dims.columns, dims.inner, kLogarithm}, dims);
  });
}

template <bool kLogarithm>
StatusOr<Kernel> backward_softmax(const KernelSetup& op) {
  return Kernel([&device = device_of(op), out = op.input("Out"), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient found, float_gradient(ctx, out, "Out", dout, dx));
    const auto [y, dy, to] = found;
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const SoftmaxDims dims, softmax_dims(*y, axis));
    if (dy->dims() != y->dims()) return refuse("Out@GRAD {}", describe(*dy));
    return run_softmax(device,
                       gpu::SoftmaxGradient{floats(y), floats(dy), floats(to), dims.columns,
                                            dims.inner, kLogarithm},
                       dims);
  });
}

}  // namespace

void add_softmax(KernelRegistry& registry) {
  registry.add("softmax", forward_softmax<false>);
  registry.add("softmax_grad", backward_softmax<false>);
  registry.add("log_softmax", forward_softmax<true>);
  registry.add("log_softmax_grad", backward_softmax<true>);
}

}  // namespace millrace::gpu
