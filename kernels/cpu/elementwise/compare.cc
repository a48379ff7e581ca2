#include "kernels/cpu/elementwise/binary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct Equal {
  template <typename T>
  static bool value(T x, T y) {
    return x == y;
  }
};
struct NotEqual {
  template <typename T>
  static bool value(T x, T y) {
    return x != y;
  }
};
struct Less {
  template <typename T>
  static bool value(T x, T y) {
    return x < y;
  }
};
struct LessEqual {
  template <typename T>
  static bool value(T x, T y) {
    return x <= y;
  }
};
struct Greater {
  template <typename T>
  static bool value(T x, T y) {
    return x > y;
  }
};
struct GreaterEqual {
  template <typename T>
  static bool value(T x, T y) {
    return x >= y;
  }
};

template <typename F>
StatusOr<Kernel> comparison(const KernelSetup& op) {
  return broadcast_kernel(
      op,
      [](const KernelContext& ctx, const BinaryOperands& on, const BroadcastNest& nest) -> Status {
        const DType dtype = wide_type(on.x->dtype());
        MILLRACE_ASSIGN_OR_RETURN(const OperandElements from, operand_elements(ctx, on, dtype));
        return dispatch<NumberTypes>(dtype, [&](auto tag) {
          using T = typename decltype(tag)::type;
          run_binary(ctx.device(), nest, kBinaryLoops<F, T, bool>,
                     reinterpret_cast<const T*>(from.x), reinterpret_cast<const T*>(from.y),
                     on.out->data<bool>());
          return Ok();
        });
      });
}

}  // namespace

/// equal, less_than and the like.
void add_elementwise_compare(KernelRegistry& registry) {
  registry.add("equal", comparison<Equal>);
  registry.add("not_equal", comparison<NotEqual>);
  registry.add("less_than", comparison<Less>);
  registry.add("less_equal", comparison<LessEqual>);
  registry.add("greater_than", comparison<Greater>);
  registry.add("greater_equal", comparison<GreaterEqual>);
}

}  // namespace millrace::kernels
