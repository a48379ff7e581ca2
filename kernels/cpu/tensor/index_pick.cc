#include "kernels/cpu/gradient.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/index_add.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// index_sample: selects from each row the elements named by the same row of an index.
namespace millrace::kernels {
namespace index_pick {
namespace {

Status check_matrices(const KernelContext& ctx, const Tensor& x, const Tensor& index) {
  if (x.rank() == 2 && index.rank() == 2 && x.dims()[0] == index.dims()[0]) return Ok();
  return ctx.error("X {} and Index {} must be matrices with the same number of rows", describe(x),
                   describe(index));
}

// Calls fn(element of the index, element of x).
template <typename I, typename Fn>
void each_pick(const I* index, int64_t rows, int64_t count, int64_t width, Fn&& fn) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < count; ++j)
      fn(r * count + j, r * width + static_cast<int64_t>(index[r * count + j]));
  }
}

StatusOr<Kernel> index_sample(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex index_arg = op.input("Index");
  const ArgIndex out_arg = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& index = ctx.in(index_arg);
    MILLRACE_RETURN_IF_ERROR(check_matrices(ctx, x, index));
    return with_index(index, "Index", [&](const auto* at) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_range(at, index.numel(), x.dims()[1], "Index"));
      return dispatch<AllTypes>(x.dtype(), [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        T* const out = ctx.out(out_arg).data<T>();
        each_pick(at, index.dims()[0], index.dims()[1], x.dims()[1],
                  [&](int64_t to, int64_t from) { out[to] = x.data<T>()[from]; });
        return Ok();
      });
    });
  });
}

StatusOr<Kernel> index_sample_grad(const KernelSetup& op) {
  const ArgIndex index_arg = op.input("Index");
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g,
                              gradient.find_required(ctx, StartsAs::kZeros));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, index_arg, "Index"));
    MILLRACE_RETURN_IF_ERROR(check_matrices(ctx, *g.to, *index));
    if (g.from->numel() != index->numel() || g.from->dtype() != g.to->dtype())
      return ctx.error("Out@GRAD {} must have the shape of Index {}", describe(*g.from),
                       describe(*index));
    return with_index(*index, "Index", [&](const auto* at) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_range(at, index->numel(), g.to->dims()[1], "Index"));
      return dispatch<AddTypes>(g.to->dtype(), [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        T* const dx = g.to->data<T>();
        each_pick(at, index->dims()[0], index->dims()[1], g.to->dims()[1],
                  [&](int64_t from, int64_t place) {
                    dx[place] = static_cast<T>(dx[place] + g.from->data<T>()[from]);
                  });
        return Ok();
      });
    });
  });
}

}  // namespace
}  // namespace index_pick

void add_tensor_index_pick(KernelRegistry& registry) {
  using namespace index_pick;
  registry.add("index_sample", index_sample);
  registry.add("index_sample_grad", index_sample_grad);
}

}  // namespace millrace::kernels
