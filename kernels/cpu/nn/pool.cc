#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/nn.h"
#include "kernels/cpu/nn/pool_grad_loops.h"
#include "kernels/cpu/nn/pool_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kGrain = 32768;

int64_t grain_of(int64_t work) {
  return std::max<int64_t>(kGrain / std::max<int64_t>(work, 1), 1);
}

// Plans by shape, and the attributes they follow from.
struct Pool {
  explicit Pool(const KernelSetup& op) : attrs(read_pool_attrs(op)) {}

  StatusOr<PoolPlan*> plan_for(const Tensor& x, const Tensor& out) {
    llvm::SmallVector<int64_t, 10> key(x.dims().begin(), x.dims().end());
    key.append(out.dims().begin(), out.dims().end());
    return plans.get(key, [&] { return plan_pool(attrs, x.dims(), out.dims()); });
  }

  PoolAttrs attrs;
  dnn::ShapeCache<PoolPlan> plans;
};

template <typename T, bool kMax>
void run_forward(CpuDevice& device, const PoolPlan& p, const T* x, T* out) {
  if (!p.channels_last) {
    device.parallel_for(p.batch * p.channels, grain_of(p.size()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        pool_plane<T, kMax>(p, x + i * p.size(), out + i * p.places());
    });
    return;
  }
  const int64_t depth = p.axes[0].places;
  const int64_t height = p.axes[1].places;
  const int64_t line = p.axes[2].places * p.channels;
  const int64_t lines = p.batch * depth * height;
  const int64_t work = p.size() * p.channels / std::max<int64_t>(depth * height, 1);
  device.parallel_for(lines, grain_of(work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* const image = x + i / (depth * height) * p.size() * p.channels;
      pool_pixels<T, kMax>(p, image, i / height % depth, i % height, out + i * line);
    }
  });
}

template <typename T, bool kMax>
void run_gradient(CpuDevice& device, const PoolPlan& p, const PoolGrad<T>& g) {
  const int64_t lanes = p.channels_last ? p.channels : 1;
  const int64_t parts = p.channels_last ? p.batch : p.batch * p.channels;
  const int64_t size = p.size() * lanes;
  const int64_t places = p.places() * lanes;
  device.parallel_for(parts, grain_of(size), [&](int64_t begin, int64_t end) {
    std::fill(g.dx + begin * size, g.dx + end * size, T{0});
    for (int64_t i = begin; i < end; ++i) {
      const PoolGrad<T> part{g.x + i * size, g.out + i * places, g.dout + i * places,
                             g.dx + i * size};
      if (p.channels_last) {
        pool_pixels_grad<T, kMax>(p, part);
      } else {
        pool_plane_grad<T, kMax>(p, part);
      }
    }
  });
}

StatusOr<Kernel> pool(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto state = std::make_shared<Pool>(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const PoolPlan* const plan, state->plan_for(*in, to));
    if (to.numel() == 0) return Ok();
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (plan->max) {
        run_forward<T, true>(ctx.device(), *plan, in->data<T>(), to.data<T>());
      } else {
        run_forward<T, false>(ctx.device(), *plan, in->data<T>(), to.data<T>());
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> pool_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.input("Out");
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const auto state = std::make_shared<Pool>(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, x_grad, *in));
    if (dx == nullptr) return Ok();
    const Tensor* const dout = ctx.find_in(out_grad);
    if (dout == nullptr || dout->numel() == 0) {
      fill_zero(*dx);
      return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed(ctx, out, "Out"));
    MILLRACE_RETURN_IF_ERROR(check_alike(*y, "Out", *dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const PoolPlan* const plan, state->plan_for(*in, *y));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (y->dtype() != in->dtype())
        return ctx.error("X {} and Out {} differ in element type", describe(*in), describe(*y));
      const PoolGrad<T> g{in->data<T>(), y->data<T>(), dout->data<T>(), dx->data<T>()};
      if (plan->max) {
        run_gradient<T, true>(ctx.device(), *plan, g);
      } else {
        run_gradient<T, false>(ctx.device(), *plan, g);
      }
      return Ok();
    });
  });
}

}  // namespace

void add_pool(KernelRegistry& registry) {
  for (const char* const type : {"pool2d", "pool3d"}) registry.add(type, pool);
  for (const char* const type : {"pool2d_grad", "pool3d_grad"}) registry.add(type, pool_grad);
}

}  // namespace millrace::kernels
