#include <numeric>
#include <utility>

#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/random/shape_arg.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Maps bits to a number in [0, bound): the upper half of the product.
inline uint64_t bounded(uint64_t bits, uint64_t bound) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * bound >> 64U);
}

StatusOr<Kernel> randint(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const ShapeArg shape(op);
  const auto low = op.attr<int64_t>("low");
  const auto high = op.attr<int64_t>("high");
  const auto seed = op.attr<int64_t>("seed");
  if (low >= high)
    return op.error("attribute 'low' is {}, which is not below 'high' {}", low, high);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const created, shape.create(ctx, out));
    Tensor& to = *created;
    const uint64_t key = stream_key(ctx.device(), seed);
    const auto bound = static_cast<uint64_t>(high - low);
    return dispatch<IntTypes>(to.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* const values = to.data<T>();
      ctx.device().parallel_for(to.numel(), 16384, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          values[i] = static_cast<T>(low + static_cast<int64_t>(bounded(
                                               random_bits(key, static_cast<uint64_t>(i)), bound)));
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> randperm(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const auto n = op.attr<int64_t>("n");
  const auto seed = op.attr<int64_t>("seed");
  const DType dtype = op.dtype_attr("dtype");
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, dtype, {n}));
    const uint64_t key = stream_key(ctx.device(), seed);
    return dispatch<NumberTypes>(dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* const values = to.data<T>();
      for (int64_t i = 0; i < n; ++i) values[i] = static_cast<T>(i);
      for (int64_t i = n - 1; i > 0; --i) {
        const auto at =
            bounded(random_bits(key, static_cast<uint64_t>(i)), static_cast<uint64_t>(i) + 1);
        std::swap(values[i], values[at]);
      }
      return Ok();
    });
  });
}

}  // namespace

void add_random_integers(KernelRegistry& registry) {
  registry.add("randint", randint);
  registry.add("randperm", randperm);
}

}  // namespace millrace::kernels
