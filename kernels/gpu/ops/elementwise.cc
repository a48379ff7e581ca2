#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

// Y within X: X is [outer, middle, inner], Y is [middle].
struct Fit {
  int64_t outer = 1;
  int64_t middle = 1;
  int64_t inner = 1;
  bool alike = false;
};

StatusOr<Fit> fit(const Tensor& x, const Tensor& y, int64_t axis) {
  Fit result;
  if (x.dims() == y.dims()) {
    result.alike = true;
    result.middle = x.numel();
    return result;
  }
  llvm::ArrayRef<int64_t> small = y.dims();
  const auto rank = static_cast<int64_t>(x.rank());
  const int64_t start = axis < 0 ? rank - static_cast<int64_t>(small.size()) : axis;
  while (!small.empty() && small.back() == 1) small = small.drop_back();
  const auto end = start + static_cast<int64_t>(small.size());
  bool fits = start >= 0 && end <= rank && y.rank() <= x.rank();
  for (int64_t i = 0; fits && i < rank; ++i) {
    const int64_t dim = x.dim(i);
    if (i < start) {
      result.outer *= dim;
    } else if (i < end) {
      fits = small[static_cast<size_t>(i - start)] == dim;
      result.middle *= dim;
    } else {
      result.inner *= dim;
    }
  }
  if (fits) return result;
  return refuse("the GPU kernel stretches Y {} over X {} only where Y's dims stand together",
                describe(y), describe(x));
}

template <typename Formula>
StatusOr<Kernel> binary(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), y = op.input("Y"),
                 out = op.output("Out"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y, "Y"));
    MILLRACE_RETURN_IF_ERROR(all_floats({a, b}));
    MILLRACE_ASSIGN_OR_RETURN(const Fit f, fit(*a, *b, axis));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *a));
    return each(device,
                Binary<Formula>{floats(a), floats(b), floats(to), f.middle, f.inner, f.alike},
                a->numel());
  });
}

// Gradients of a sum or a difference: the gradient of Y is summed over the dims along which Y was
// repeated.
template <bool kNegative>
StatusOr<Kernel> sum_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), y = op.input("Y"), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD"), dy = op.output("Y@GRAD"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(all_floats({b, d}));
    MILLRACE_ASSIGN_OR_RETURN(const Fit f, fit(*d, *b, axis));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, output_like(ctx, dx, *d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_y, output_like(ctx, dy, *b));
    constexpr float kSign = kNegative ? -1.0F : 1.0F;
    // Y's gradient first: X's may share memory with the incoming one
    if (to_y != nullptr && f.alike) {
      MILLRACE_RETURN_IF_ERROR(
          each(device, Scale{floats(d), floats(to_y), kSign, 0.0F, true}, d->numel()));
    } else if (to_y != nullptr) {
      MILLRACE_RETURN_IF_ERROR(rows(
          device, SumMiddle{floats(d), floats(to_y), f.outer, f.middle, f.inner, kSign}, f.middle));
    }
    if (to_x == nullptr || to_x->raw() == d->raw() || d->bytes() == 0) return Ok();
    return device.copy(d->raw(), to_x->raw(), d->bytes());
  });
}

StatusOr<Kernel> gpu_scale(const KernelSetup& op) {
  if (op.input("ScaleTensor")) return refuse("scale by a tensor runs on the CPU");
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"),
                 factor = op.attr<float>("scale"), bias = op.attr<float>("bias"),
                 after = op.attr<bool>("bias_after_scale")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    return each(device, Scale{floats(from), floats(to), factor, bias, after}, from->numel());
  });
}

StatusOr<Kernel> gpu_sum(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  return Kernel([&device = device_of(op), x,
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    const auto at = [&](int32_t k) {
      return ctx.has_in(x, k) ? ctx.in_value(x, k).get_if<Tensor>() : nullptr;
    };
    Tensor& to = ctx.out(out);
    for (int32_t k = 0; k < x.count; ++k) {
      const Tensor* const each = at(k);
      if (each == nullptr || each->dims() != to.dims() || each->dtype() != DType::kFloat32 ||
          (k > 0 && each->raw() == to.raw()))
        return refuse("the GPU kernel adds dense floats of one shape only");
    }
    MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
    if (x.count == 1 && at(0)->raw() != to.raw() && to.bytes() > 0)
      return device.copy(at(0)->raw(), to.raw(), to.bytes());
    const float* so_far = floats(at(0));
    for (int32_t k = 1; k < x.count; ++k) {
      MILLRACE_RETURN_IF_ERROR(each(
          device, Binary<Add>{so_far, floats(at(k)), floats(to), to.numel(), 1, true}, to.numel()));
      so_far = floats(to);
    }
    return Ok();
  });
}

}  // namespace

void add_elementwise(KernelRegistry& registry) {
  registry.add("elementwise_add", binary<Add>);
  registry.add("elementwise_sub", binary<Subtract>);
  registry.add("elementwise_mul", binary<Multiply>);
  registry.add("elementwise_div", binary<Divide>);
  registry.add("elementwise_add_grad", sum_grad<false>);
  registry.add("elementwise_sub_grad", sum_grad<true>);
  registry.add("scale", gpu_scale);
  registry.add("sum", gpu_sum);
}

}  // namespace millrace::gpu
