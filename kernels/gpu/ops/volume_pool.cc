#include <memory>

#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/channels_first.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/gpu/ops/pool_settings.h"
#include "kernels/registry.h"

// pool3d; max_pool2d_with_index and max_pool3d_with_index; unpool.
namespace millrace::gpu {
namespace volume_pool {
namespace {

using kernels::PoolAttrs;

// Uses the shapes in the CPU kernel's plan.
StatusOr<PoolVolume> volume_of(const PoolAttrs& attrs, const Tensor& x, const Tensor& out) {
  const StatusOr<kernels::PoolPlan> plan = kernels::plan_pool(attrs, x.dims(), out.dims());
  if (!plan.ok()) return refuse("{}", plan.status().message());
  if (plan->size() > INT32_MAX) return refuse("X {}", describe(x));
  PoolVolume volume{};
  volume.max = plan->max;
  for (size_t i = 0; i < 3; ++i) {
    const kernels::PoolAxis& axis = plan->axes[i];
    const bool exists = i + x.rank() >= 5;  // dims that the image lacks have one window
    volume.sides[i] = PoolSide{axis.size,      axis.places, axis.kernel,
                               axis.stride,    axis.before, exists && attrs.shares(),
                               attrs.exclusive};
  }
  return volume;
}

StatusOr<Kernel> pool(const KernelSetup& op) {
  return forward_pool(
      op, [](const PoolAttrs& attrs, const Tensor& x, Tensor& out) -> StatusOr<PoolVolumeForward> {
        MILLRACE_ASSIGN_OR_RETURN(const PoolVolume volume, volume_of(attrs, x, out));
        return PoolVolumeForward{volume, floats(x), floats(out), nullptr, false};
      });
}

// The gradient of pool3d.
class PoolGradient {
 public:
  explicit PoolGradient(const KernelSetup& op)
      : attrs_(read_pool_settings(op)),
        device_(device_of(op)),
        x_(op.input("X")),
        out_(op.input("Out")),
        dout_(op.input("Out@GRAD")),
        dx_(op.output("X@GRAD")),
        index_(memory_of(op), "maxima of pool3d_grad") {}

  Status run(const KernelContext& ctx) {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g, float_gradient(ctx, x_, "X", dout_, dx_));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, out_, "Out"));
    if (g.dx == nullptr) return Ok();
    if (g.dy->dims() != y->dims()) return refuse("Out@GRAD {}", describe(*g.dy));
    MILLRACE_ASSIGN_OR_RETURN(const PoolVolume volume, volume_of(attrs_, *g.y, *y));
    const int64_t results = g.dy->numel();
    int32_t* maxima = nullptr;
    if (volume.max && results > 0) {
      MILLRACE_ASSIGN_OR_RETURN(maxima, index_.get(results));
      const PoolVolumeForward find{volume, floats(g.y), nullptr, maxima, false};
      MILLRACE_RETURN_IF_ERROR(each(device_, find, results));
    }
    return volume.max ? back<true>(volume, maxima, g) : back<false>(volume, maxima, g);
  }

 private:
  template <bool kMax>
  Status back(const PoolVolume& volume, const int32_t* maxima, const FloatGradient& g) {
    return each(device_, PoolVolumeBackward<kMax>{volume, maxima, floats(g.dy), floats(g.dx)},
                g.dx->numel());
  }

  PoolAttrs attrs_;
  Device& device_;
  ArgIndex x_, out_, dout_, dx_;
  KeptMemory<int32_t> index_;
};

StatusOr<Kernel> pool_grad(const KernelSetup& op) {
  const auto gradient = std::make_shared<PoolGradient>(op);
  return in_channels_first(op, kernels::read_pool_attrs(op).channels_last,
                           {"X", "Out", "Out@GRAD", "X@GRAD"},
                           [gradient](const KernelContext& ctx) { return gradient->run(ctx); });
}

StatusOr<Kernel> pool_with_index(const KernelSetup& op) {
  return Kernel([attrs = read_pool_settings(op), args = FloatArgs(op),
                 mask = op.output("Mask")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, args.find(ctx));
    const auto [from, to] = found;
    MILLRACE_ASSIGN_OR_RETURN(const PoolVolume volume, volume_of(attrs, *from, *to));
    Tensor& index = ctx.out(mask);
    if (index.dtype() != DType::kInt32 || index.dims() != to->dims())
      return refuse("Mask {}", describe(index));
    return each(args.device,
                PoolVolumeForward{volume, floats(from), floats(to),
                                  reinterpret_cast<int32_t*>(index.raw()), true},
                to->numel());
  });
}

// The images of two tensors [batch, channels, spatial...] whose elements positions relate.
struct PlanePair {
  int64_t planes = 1;
  int64_t count = 1;  // elements of a small plane, with positions
  int64_t size = 1;   // elements of a large plane
};

StatusOr<PlanePair> planes_of(const Tensor& small, const Tensor& at, const Tensor& large) {
  if (small.rank() < 3 || at.dims() != small.dims() || large.rank() != small.rank() ||
      large.dim(0) != small.dim(0) || large.dim(1) != small.dim(1) || small.numel() == 0 ||
      large.numel() == 0)
    return refuse("{}, {} and {}", describe(small), describe(at), describe(large));
  const int64_t planes = small.dim(0) * small.dim(1);
  return PlanePair{planes, small.numel() / planes, large.numel() / planes};
}

// Calls body with a pointer to the positions. Errors: rejects other types than integers.
template <typename Body>
Status with_positions(const Tensor& at, const Body& body) {
  if (at.dtype() == DType::kInt32) return body(reinterpret_cast<const int32_t*>(at.raw()));
  if (at.dtype() == DType::kInt64) return body(reinterpret_cast<const int64_t*>(at.raw()));
  return refuse("positions are {}", describe(at));
}

Status put(Device& device, const Tensor& from, const Tensor& at, Tensor& to, bool gradient) {
  MILLRACE_ASSIGN_OR_RETURN(const PlanePair p, planes_of(from, at, to));
  return with_positions(at, [&]<typename Index>(const Index* places) {
    return each(
        device,
        PutInPlane<Index>{places, floats(from), floats(to), p.count, p.size, gradient, gradient},
        p.planes);
  });
}

StatusOr<Kernel> unpool(const KernelSetup& op) {
  if (kernels::channels_last(op, "data_format")) return refuse("channels are last");
  return Kernel(
      [args = FloatArgs(op), indices = op.input("Indices")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, args.find(ctx));
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const at, needed_here(ctx, indices, "Indices"));
        return put(args.device, *found.x, *at, *found.out, /*gradient=*/false);
      });
}

Status take(Device& device, const Tensor& from, const Tensor& at, Tensor& to) {
  MILLRACE_ASSIGN_OR_RETURN(const PlanePair p, planes_of(to, at, from));
  return with_positions(at, [&]<typename Index>(const Index* places) {
    return each(device, TakeFromPlane<Index>{places, floats(from), floats(to), p.count, p.size},
                to.numel());
  });
}

// \param slot   with the positions
// \param takes  the gradient of an op that puts elements, else of one that takes them
StatusOr<Kernel> gradient(const KernelSetup& op, const char* slot, bool takes) {
  return Kernel([&device = device_of(op), x = op.input("X"), positions = op.input(slot),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"), slot,
                 takes](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g, float_gradient(ctx, x, "X", dout, dx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const at, needed_here(ctx, positions, slot));
    if (g.dx == nullptr) return Ok();
    if (takes) return take(device, *g.dy, *at, *g.dx);
    if (at->dtype() != DType::kInt32) return refuse("{} {}", slot, describe(*at));
    return put(device, *g.dy, *at, *g.dx, /*gradient=*/true);
  });
}
StatusOr<Kernel> pool_with_index_grad(const KernelSetup& op) {
  return gradient(op, "Mask", /*takes=*/false);
}
StatusOr<Kernel> unpool_grad(const KernelSetup& op) {
  if (kernels::channels_last(op, "data_format")) return refuse("channels are last");
  return gradient(op, "Indices", /*takes=*/true);
}

}  // namespace
}  // namespace volume_pool

void add_volume_pool(KernelRegistry& registry) {
  using namespace volume_pool;
  registry.add("pool3d", pool);
  registry.add("pool3d_grad", pool_grad);
  for (const char* const type : {"max_pool2d_with_index", "max_pool3d_with_index"})
    registry.add(type, pool_with_index);
  for (const char* const type : {"max_pool2d_with_index_grad", "max_pool3d_with_index_grad"})
    registry.add(type, pool_with_index_grad);
  registry.add("unpool", unpool);
  registry.add("unpool_grad", unpool_grad);
}

}  // namespace millrace::gpu
