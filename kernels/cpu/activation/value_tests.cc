#include <bit>
#include <cmath>

#include "kernels/cpu/nest.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace value_tests {
namespace {

enum class ValueTest { kFinite, kInfinite, kNan };

template <ValueTest kTest, typename C>
bool holds(C value) {
  switch (kTest) {
    case ValueTest::kFinite:
      return std::isfinite(value);
    case ValueTest::kInfinite:
      return std::isinf(value);
    case ValueTest::kNan:
      return std::isnan(value);
  }
}

template <ValueTest kTest, typename T>
void run(CpuDevice& device, const Tensor& x, Tensor& out) {
  const T* const from = x.data<T>();
  bool* const to = out.data<bool>();
  device.parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (std::is_integral_v<T>) {
        to[i] = kTest == ValueTest::kFinite;
      } else {
        to[i] = holds<kTest>(static_cast<Compute<T>>(from[i]));
      }
    }
  });
}

template <ValueTest kTest>
StatusOr<Kernel> make(const KernelSetup& op) {
  return Kernel([x = op.input("X"), out = op.output("Out")](const KernelContext& ctx) {
    return dispatch<AllTypes>(ctx.in(x).dtype(), [&](auto tag) {
      run<kTest, typename decltype(tag)::type>(ctx.device(), ctx.in(x), ctx.out(out));
      return Ok();
    });
  });
}

}  // namespace
}  // namespace value_tests

/// isfinite_v2, isinf_v2, isnan_v2.
void add_activation_value_tests(KernelRegistry& registry) {
  using namespace value_tests;
  registry.add("isfinite_v2", make<ValueTest::kFinite>);
  registry.add("isinf_v2", make<ValueTest::kInfinite>);
  registry.add("isnan_v2", make<ValueTest::kNan>);
}

}  // namespace millrace::kernels
