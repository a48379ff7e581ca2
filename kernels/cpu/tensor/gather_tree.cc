#include "kernels/cpu/index.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Traces each beam of the last time step back to the first.
template <typename I>
void follow(const I* ids, const I* parents, int64_t steps, int64_t batch, int64_t beams, I* out) {
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t k = 0; k < beams; ++k) {
      int64_t beam = k;
      for (int64_t t = steps - 1; t >= 0; --t) {
        const int64_t row = (t * batch + b) * beams;
        out[row + k] = ids[row + beam];
        beam = static_cast<int64_t>(parents[row + beam]);
      }
    }
  }
}

StatusOr<Kernel> gather_tree(const KernelSetup& op) {
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex parents_arg = op.input("Parents");
  const ArgIndex out_arg = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& ids = ctx.in(ids_arg);
    const Tensor& parents = ctx.in(parents_arg);
    if (ids.rank() != 3 || parents.dims() != ids.dims() || parents.dtype() != ids.dtype())
      return ctx.error("Ids {} and Parents {} must be [steps, batch, beams] of one type",
                       describe(ids), describe(parents));
    return with_index(ids, "Ids", [&](const auto* from) -> Status {
      using I = std::remove_cv_t<std::remove_reference_t<decltype(*from)>>;
      MILLRACE_RETURN_IF_ERROR(
          check_range(parents.data<I>(), parents.numel(), ids.dims()[2], "Parents"));
      follow(from, parents.data<I>(), ids.dims()[0], ids.dims()[1], ids.dims()[2],
             ctx.out(out_arg).data<I>());
      return Ok();
    });
  });
}

}  // namespace

void add_tensor_gather_tree(KernelRegistry& registry) {
  registry.add("gather_tree", gather_tree);
}

}  // namespace millrace::kernels
