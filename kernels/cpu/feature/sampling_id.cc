#include "kernels/cpu/random/bits.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// The column that a uniform number selects: the first one whose cumulative probability exceeds it,
// or the last column if none does.
template <typename T>
int64_t pick(const T* row, int64_t classes, double number) {
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    sum += static_cast<double>(row[c]);
    if (number < sum) return c;
  }
  return classes - 1;
}

StatusOr<Kernel> sampling_id(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const double min = op.attr<float>("min");
  const double max = op.attr<float>("max");
  const auto seed = op.attr<int64_t>("seed");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    if (x.rank() != 2 || x.dims()[1] == 0)
      return ctx.error("X must be a matrix with at least one column, found {}", describe(x));
    const int64_t rows = x.dims()[0];
    const int64_t classes = x.dims()[1];
    if (!out.initialized() || out.dtype() != DType::kInt64 || out.numel() != rows)
      MILLRACE_RETURN_IF_ERROR(out.resize(DType::kInt64, {rows}));
    const uint64_t key = stream_key(ctx.device(), seed);
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t r = 0; r < rows; ++r) {
        const double unit = unit_double(random_bits(key, static_cast<uint64_t>(r)));
        out.data<int64_t>()[r] = pick(x.data<T>() + r * classes, classes, min + (max - min) * unit);
      }
      return Ok();
    });
  });
}

}  // namespace

void add_feature_sampling_id(KernelRegistry& registry) {
  registry.add("sampling_id", sampling_id);
}

}  // namespace millrace::kernels
