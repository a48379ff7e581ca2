#include <limits>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/pool_loops.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// The maximum of each window and its position in the image (row by row); the first one for ties.
// Windows that are empty or contain only NaN have position -1.
template <typename T>
void pool_plane_indexed(const PoolPlan& p, const T* image, T* out, int32_t* mask) {
  const PoolAxis& width = p.axes[2];
  for (int64_t line = 0; line < p.axes[0].places * p.axes[1].places; ++line) {
    for (int64_t w = 0; w < width.places; ++w) {
      const auto place = static_cast<size_t>(w);
      T best = std::numeric_limits<T>::lowest();
      int64_t found = -1;
      for_lines(p, line / p.axes[1].places, line % p.axes[1].places, [&](int64_t from) {
        for (int64_t x = width.begin[place]; x < width.end[place]; ++x) {
          const T value = image[from * width.size + x];
          if (!(best < value)) continue;
          best = value;
          found = from * width.size + x;
        }
      });
      *out++ = best;
      *mask++ = static_cast<int32_t>(found);
    }
  }
}

StatusOr<Kernel> max_pool_with_index(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const ArgIndex mask = op.output("Mask");
  return Kernel([=, attrs = read_pool_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    Tensor& values = ctx.out(out);
    Tensor& places = ctx.out(mask);
    MILLRACE_ASSIGN_OR_RETURN(const PoolPlan plan, plan_pool(attrs, in->dims(), values.dims()));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t planes = plan.batch * plan.channels;
      const int64_t grain = std::max<int64_t>(32768 / std::max<int64_t>(plan.size(), 1), 1);
      ctx.device().parallel_for(planes, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          pool_plane_indexed(plan, in->data<T>() + i * plan.size(),
                             values.data<T>() + i * plan.places(),
                             places.data<int32_t>() + i * plan.places());
        }
      });
      return Ok();
    });
  });
}

template <size_t kSpatial>
StatusOr<Kernel> max_pool_with_index_grad(const KernelSetup& op) {
  const ArgIndex mask = op.input("Mask");
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kZeros));
    if (!g || g.from->numel() == 0) return Ok();
    const auto [in, dout, dx] = g;
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed(ctx, mask, "Mask"));
    if (places->dtype() != DType::kInt32 || places->dims() != dout->dims() ||
        in->rank() != kSpatial + 2 || dout->rank() != kSpatial + 2 ||
        in->dtype() != dout->dtype() || in->dim(0) != dout->dim(0) || in->dim(1) != dout->dim(1)) {
      return ctx.error("X {}, Mask {} and Out@GRAD {} do not match", describe(*in),
                       describe(*places), describe(*dout));
    }
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const int64_t size = ops::dims_product(in->dims().drop_front(2));
      const int64_t count = ops::dims_product(dout->dims().drop_front(2));
      const int32_t* const at = places->data<int32_t>();
      for (int64_t i = 0; i < dout->numel(); ++i) {
        if (at[i] == -1) continue;
        if (at[i] < 0 || at[i] >= size)
          return ctx.error("Mask has position {} in an image of {} elements", at[i], size);
        dx->data<T>()[i / count * size + at[i]] += dout->data<T>()[i];
      }
      return Ok();
    });
  });
}

}  // namespace

void add_nn_pool_with_index(KernelRegistry& registry) {
  registry.add("max_pool2d_with_index", max_pool_with_index);
  registry.add("max_pool2d_with_index_grad", max_pool_with_index_grad<2>);
  registry.add("max_pool3d_with_index", max_pool_with_index);
  registry.add("max_pool3d_with_index_grad", max_pool_with_index_grad<3>);
}

}  // namespace millrace::kernels
