#include <bit>
#include <cmath>

#include "kernels/cpu/activation/activation.h"
#include "kernels/cpu/nest.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"

namespace millrace::kernels {
namespace {

enum class Test { kFinite, kInfinite, kNan };

template <Test kTest, typename C>
bool holds(C value) {
  switch (kTest) {
    case Test::kFinite:
      return std::isfinite(value);
    case Test::kInfinite:
      return std::isinf(value);
    case Test::kNan:
      return std::isnan(value);
  }
}

template <Test kTest, typename T>
void run(CpuDevice& device, const Tensor& x, Tensor& out) {
  const T* const from = x.data<T>();
  bool* const to = out.data<bool>();
  device.parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (std::is_integral_v<T>) {
        to[i] = kTest == Test::kFinite;
      } else {
        to[i] = holds<kTest>(static_cast<Compute<T>>(from[i]));
      }
    }
  });
}

template <Test kTest>
StatusOr<Kernel> make(const KernelSetup& op) {
  return Kernel([x = op.input("X"), out = op.output("Out")](const KernelContext& ctx) {
    return dispatch<AllTypes>(ctx.in(x).dtype(), [&](auto tag) {
      run<kTest, typename decltype(tag)::type>(ctx.device(), ctx.in(x), ctx.out(out));
      return Ok();
    });
  });
}

}  // namespace

void add_value_tests(KernelRegistry& registry) {
  registry.add("isfinite_v2", make<Test::kFinite>);
  registry.add("isinf_v2", make<Test::kInfinite>);
  registry.add("isnan_v2", make<Test::kNan>);
}

}  // namespace millrace::kernels
