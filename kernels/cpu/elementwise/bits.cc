#include "kernels/cpu/elementwise/binary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace bits {
namespace {

struct And {
  template <typename T>
  static T value(T x, T y) {
    return static_cast<T>(x & y);
  }
};
struct Or {
  template <typename T>
  static T value(T x, T y) {
    return static_cast<T>(x | y);
  }
};
struct Xor {
  template <typename T>
  static T value(T x, T y) {
    return static_cast<T>(x ^ y);
  }
};

template <typename F, typename T>
void run(CpuDevice& device, const BroadcastNest& nest, const std::byte* x, const std::byte* y,
         std::byte* out) {
  run_binary(device, nest, kBinaryLoops<F, T>, reinterpret_cast<const T*>(x),
             reinterpret_cast<const T*>(y), reinterpret_cast<T*>(out));
}

// Bitwise ops need one loop per element size only. A bool is one byte with value 0 or 1.
template <typename F>
StatusOr<Kernel> bitwise(const KernelSetup& op) {
  return broadcast_kernel(
      op,
      [](const KernelContext& ctx, const BinaryOperands& on, const BroadcastNest& nest) -> Status {
        return dispatch<Types<bool, int8_t, uint8_t, int16_t, int32_t, int64_t>>(
            on.x->dtype(), [&](auto tag) {
              using T = typename decltype(tag)::type;
              using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, T>;
              run<F, Bits>(ctx.device(), nest, on.x->raw(), on.y->raw(), on.out->raw());
              return Ok();
            });
      });
}

template <typename F>
StatusOr<Kernel> logical(const KernelSetup& op) {
  return broadcast_kernel(
      op,
      [](const KernelContext& ctx, const BinaryOperands& on, const BroadcastNest& nest) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const OperandElements from,
                                  operand_elements(ctx, on, DType::kBool));
        run<F, uint8_t>(ctx.device(), nest, from.x, from.y, on.out->raw());
        return Ok();
      });
}

StatusOr<Kernel> logical_not(const KernelSetup& op) {
  return Kernel([x = op.input("X"), out = op.output("Out")](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    bool* const to = ctx.out(out).data<bool>();
    MILLRACE_RETURN_IF_ERROR(convert(from.dtype(), from.raw(), DType::kBool,
                                     reinterpret_cast<std::byte*>(to), from.numel()));
    for (int64_t i = 0; i < from.numel(); ++i) to[i] = !to[i];
    return Ok();
  });
}

}  // namespace
}  // namespace bits

/// logical_* and bitwise_*.
void add_elementwise_bits(KernelRegistry& registry) {
  using namespace bits;
  registry.add("bitwise_and", bitwise<And>);
  registry.add("bitwise_or", bitwise<Or>);
  registry.add("bitwise_xor", bitwise<Xor>);
  registry.add("logical_and", logical<And>);
  registry.add("logical_or", logical<Or>);
  registry.add("logical_xor", logical<Xor>);
  registry.add("logical_not", logical_not);
}

}  // namespace millrace::kernels
