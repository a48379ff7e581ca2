#include "kernels/cpu/int_list.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/tensor/cut.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

namespace millrace::kernels {
namespace {

StatusOr<Kernel> random_crop(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex seed_arg = op.input("Seed");
  const ArgIndex out_arg = op.output("Out");
  const ArgIndex seed_out = op.output("SeedOut");
  const auto window = op.attr<std::vector<int64_t>>("shape");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    if (window.size() > x.rank())
      return ctx.error("attribute 'shape' has {} dims, more than X {}", window.size(), describe(x));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t seed, one_int(ctx.in(seed_arg), "Seed"));
    const size_t lead = x.rank() - window.size();
    const auto dims = x.dims().drop_front(lead);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (window[d] < 0 || window[d] > dims[d])
        return ctx.error("attribute 'shape' is {} in dim {}, but X is {}", window[d], lead + d,
                         describe(x));
    }
    const int64_t instances = ops::dims_product(x.dims().take_front(lead));
    const int64_t size = dtype_size(x.dtype());
    const int64_t from_bytes = ops::dims_product(dims) * size;
    const int64_t to_bytes = ops::dims_product(window) * size;
    uint64_t drawn = 0;
    for (int64_t n = 0; n < instances; ++n) {
      llvm::SmallVector<Cut, 4> cuts;
      for (size_t d = 0; d < dims.size(); ++d) {
        const auto places = static_cast<uint64_t>(dims[d] - window[d] + 1);
        const uint64_t bits = random_bits(static_cast<uint64_t>(seed), drawn++);
        cuts.push_back({static_cast<int64_t>((bits >> 32U) * places >> 32U), window[d], 1});
      }
      const CutBox cut(dims, cuts);
      copy_strided(ctx.device(), size, cut.box, out.raw() + n * to_bytes,
                   x.raw() + n * from_bytes + cut.offset * size);
    }
    Tensor* const next = ctx.find_out(seed_out);
    if (next == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(size_output(*next, DType::kInt64, ctx.in(seed_arg).dims()));
    *next->data<int64_t>() =
        static_cast<int64_t>(random_bits(static_cast<uint64_t>(seed), drawn) >> 1U);
    return Ok();
  });
}

}  // namespace

void add_tensor_random_crop(KernelRegistry& registry) {
  registry.add("random_crop", random_crop);
}

}  // namespace millrace::kernels
