#include <optional>

#include "kernels/cpu/layouts.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/adapted.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/pool_grad_loops.h"
#include "kernels/cpu/nn/pool_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace pool {
namespace {

constexpr int64_t kPoolGrain = 32768;

int64_t grain_of(int64_t work) {
  return std::max<int64_t>(kPoolGrain / std::max<int64_t>(work, 1), 1);
}

// Plans by shape, and the attributes they depend on.
struct Pool {
  struct Prepared {
    PoolPlan plan;
    LayoutPtr out;  ///< layout of the result if X has one
  };
  explicit Pool(const KernelSetup& op) : attrs(read_pool_attrs(op)) {}

  // For blocks of channels, each block is treated as an image with channels last.
  StatusOr<Prepared*> plan_for(const Tensor& x, const Tensor& out) {
    const std::optional<ChannelBlocks> blocks = channel_blocks(x);
    llvm::SmallVector<int64_t, 12> key(x.dims().begin(), x.dims().end());
    key.append(out.dims().begin(), out.dims().end());
    key.append({blocks ? blocks->lanes : 0, blocks ? blocks->blocks : 0});
    return plans.get(key, [&]() -> StatusOr<Prepared> {
      Prepared prepared;
      MILLRACE_ASSIGN_OR_RETURN(prepared.plan, plan_pool(attrs, x.dims(), out.dims()));
      if (!blocks) return prepared;
      prepared.plan.batch = blocks->outer * blocks->blocks;
      prepared.plan.channels = blocks->lanes;
      prepared.plan.channels_last = true;
      MILLRACE_ASSIGN_OR_RETURN(prepared.out, blocks_like(x.layout(), x.dtype(), out.dims()));
      return prepared;
    });
  }

  // Converts X to row-major order unless the loops support its layout.
  Status settle(const KernelContext& ctx, ArgIndex x) const {
    const Tensor& tensor = ctx.in(x);
    if (tensor.layout() == nullptr) return Ok();
    if (!attrs.channels_last && tensor.dtype() == DType::kFloat32 && channel_blocks(tensor))
      return Ok();
    return bring_to_plain(ctx, {x});
  }

  PoolAttrs attrs;
  dnn::ShapeCache<Prepared> plans;
};

Status give_layout(Tensor& tensor, const LayoutPtr& layout) {
  const Dims dims(tensor.dims().begin(), tensor.dims().end());
  return tensor.resize(tensor.dtype(), dims, layout);
}

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

StatusOr<Kernel> pool_kernel(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto state = std::make_shared<Pool>(op);
  op.accept_layout(x);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(state->settle(ctx, x));
    MILLRACE_ASSIGN_OR_RETURN(const Pool::Prepared* const prepared, state->plan_for(*in, to));
    if (to.numel() == 0) return Ok();
    if (prepared->out != nullptr) MILLRACE_RETURN_IF_ERROR(give_layout(to, prepared->out));
    const PoolPlan& plan = prepared->plan;
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (plan.max) {
        run_forward<T, true>(ctx.device(), plan, stored<T>(*in), stored<T>(to));
      } else {
        run_forward<T, false>(ctx.device(), plan, stored<T>(*in), stored<T>(to));
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> pool_grad_kernel(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.input("Out");
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const auto state = std::make_shared<Pool>(op);
  for (const ArgIndex arg : {x, out, out_grad}) op.accept_layout(arg);
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
    MILLRACE_RETURN_IF_ERROR(state->settle(ctx, x));
    MILLRACE_ASSIGN_OR_RETURN(const Pool::Prepared* const prepared, state->plan_for(*in, *y));
    for (const ArgIndex arg : {out, out_grad})
      MILLRACE_RETURN_IF_ERROR(bring_to(ctx, arg, prepared->out));
    MILLRACE_RETURN_IF_ERROR(give_layout(*dx, in->layout()));
    const PoolPlan& plan = prepared->plan;
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (y->dtype() != in->dtype())
        return ctx.error("X {} and Out {} differ in element type", describe(*in), describe(*y));
      const PoolGrad<T> g{stored<T>(*in), stored<T>(*y), stored<T>(*dout), stored<T>(*dx)};
      if (plan.max) {
        run_gradient<T, true>(ctx.device(), plan, g);
      } else {
        run_gradient<T, false>(ctx.device(), plan, g);
      }
      return Ok();
    });
  });
}

}  // namespace
}  // namespace pool

void add_nn_pool(KernelRegistry& registry) {
  using namespace pool;
  for (const char* const type : {"pool2d", "pool3d"}) registry.add(type, in_float<pool_kernel>);
  for (const char* const type : {"pool2d_grad", "pool3d_grad"})
    registry.add(type, in_float<pool_grad_kernel>);
}

}  // namespace millrace::kernels
