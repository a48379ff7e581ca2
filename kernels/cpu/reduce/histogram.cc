#include <algorithm>
#include <cmath>

#include "kernels/cpu/int_list.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Counts in the element type, as the original does: integers use integer division.
template <typename T>
Status count_elements(const KernelContext& ctx, const Tensor& x, T low, T high, int64_t* counts,
                      int64_t bins) {
  const T* const values = x.data<T>();
  if (low == high && x.numel() > 0) {
    const auto [least, most] = std::minmax_element(values, values + x.numel());
    low = *least;
    high = *most;
    if constexpr (std::is_floating_point_v<T>) {
      const bool finite =
          std::all_of(values, values + x.numel(), [](T value) { return std::isfinite(value); });
      if (!finite) return ctx.error("X has elements that are not finite, so it has no range");
    }
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (!(values[i] >= low && values[i] <= high)) continue;
    using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    const Wide place = (static_cast<Wide>(values[i]) - static_cast<Wide>(low)) *
                       static_cast<Wide>(bins) / (static_cast<Wide>(high) - static_cast<Wide>(low));
    ++counts[std::min(static_cast<int64_t>(place), bins - 1)];
  }
  return Ok();
}

StatusOr<Kernel> histogram(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto bins = op.attr<int64_t>("bins");
  const auto low = op.attr<int64_t>("min");
  const auto high = op.attr<int64_t>("max");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, DType::kInt64, {bins}));
    std::fill_n(to.data<int64_t>(), bins, int64_t{0});
    return dispatch<NumberTypes>(from.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return count_elements<T>(ctx, from, static_cast<T>(low), static_cast<T>(high),
                               to.data<int64_t>(), bins);
    });
  });
}

}  // namespace

void add_reduce_histogram(KernelRegistry& registry) {
  registry.add("histogram", histogram);
}

}  // namespace millrace::kernels
