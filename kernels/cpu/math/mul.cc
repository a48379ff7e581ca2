#include <cstring>

#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/elementwise/binary.h"
#include "kernels/cpu/matrix_product.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace mul_kernels {
namespace {

// The three matrices of out = x x y, stored in tensors of any rank.
struct Folded {
  int64_t rows = 1;
  int64_t inner = 1;
  int64_t columns = 1;

  [[nodiscard]] ProductShape forward() const { return {rows, inner, columns, false, false, {}}; }
  [[nodiscard]] ProductShape grad_x() const { return {rows, columns, inner, false, true, {}}; }
  [[nodiscard]] ProductShape grad_y() const { return {inner, rows, columns, true, false, {}}; }
};

int64_t product_of(llvm::ArrayRef<int64_t> dims) {
  int64_t out = 1;
  for (const int64_t dim : dims) out *= dim;
  return out;
}

StatusOr<Folded> fold(const Tensor& x, const Tensor& y, int64_t x_cut, int64_t y_cut) {
  if (x_cut < 0 || x_cut > static_cast<int64_t>(x.rank()) || y_cut < 0 ||
      y_cut > static_cast<int64_t>(y.rank()))
    return KernelContext::error("X {} and Y {} have too few dims", describe(x), describe(y));
  const auto at_x = static_cast<size_t>(x_cut);
  const auto at_y = static_cast<size_t>(y_cut);
  const Folded folded{product_of(x.dims().take_front(at_x)), product_of(x.dims().drop_front(at_x)),
                      product_of(y.dims().drop_front(at_y))};
  if (product_of(y.dims().take_front(at_y)) != folded.inner || x.dtype() != y.dtype())
    return KernelContext::error("X {} and Y {} cannot be multiplied", describe(x), describe(y));
  return folded;
}

// Arguments and attributes of mul, mv and addmm, which differ in names only.
struct MulSetup {
  ArgIndex x;
  ArgIndex y;
  ArgIndex out;
  ArgIndex dout;
  ArgIndex more;  ///< a summand that the gradient of X is added to
  ArgIndex dx;
  ArgIndex dy;
  int64_t x_cut = 1;
  int64_t y_cut = 1;

  MulSetup(const KernelSetup& op, const char* y_slot)
      : x(op.input("X")),
        y(op.input(y_slot)),
        out(op.output("Out")),
        dout(op.input("Out@GRAD")),
        more(op.input("MoreX@GRAD")),
        dx(op.output("X@GRAD")),
        dy(op.output(std::string(y_slot) + "@GRAD")) {}

  Status forward(const KernelContext& ctx, const MatrixProduct& product, bool accumulate) const {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    MILLRACE_ASSIGN_OR_RETURN(const Folded folded, fold(a, b, x_cut, y_cut));
    return product.run(ctx.device(), a.dtype(), folded.forward(), a.raw(), b.raw(),
                       ctx.out(out).raw(), accumulate);
  }

  // Initializes the result with the summand, which may share its memory.
  static Status begin_with(const KernelContext& ctx, const Tensor* summand, Tensor& result) {
    if (summand == nullptr || summand->dtype() != result.dtype() ||
        summand->numel() != result.numel()) {
      return ctx.error("MoreX@GRAD must match X@GRAD {}, found {}", describe(result),
                       summand == nullptr ? "no dense tensor" : describe(*summand));
    }
    if (summand->raw() != result.raw() && result.numel() > 0)
      std::memcpy(result.raw(), summand->raw(), static_cast<size_t>(result.bytes()));
    return Ok();
  }

  Status backward(const KernelContext& ctx, const MatrixProduct& for_x,
                  const MatrixProduct& for_y) const {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    const Tensor& grad = ctx.in(dout);
    MILLRACE_ASSIGN_OR_RETURN(const Folded folded, fold(a, b, x_cut, y_cut));
    if (grad.numel() != folded.rows * folded.columns || grad.dtype() != a.dtype()) {
      return ctx.error("Out@GRAD must have {} elements of the type of X {}, found {}",
                       folded.rows * folded.columns, describe(a), describe(grad));
    }
    if (Tensor* const da = ctx.find_out(dx)) {
      const Tensor* const sum = ctx.find_in(more);
      if (more) MILLRACE_RETURN_IF_ERROR(begin_with(ctx, sum, *da));
      MILLRACE_RETURN_IF_ERROR(for_x.run(ctx.device(), a.dtype(), folded.grad_x(), grad.raw(),
                                         b.raw(), da->raw(), sum != nullptr));
    }
    if (Tensor* const db = ctx.find_out(dy)) {
      MILLRACE_RETURN_IF_ERROR(
          for_y.run(ctx.device(), a.dtype(), folded.grad_y(), a.raw(), grad.raw(), db->raw()));
    }
    return Ok();
  }
};

MulSetup mul_setup(const KernelSetup& op) {
  MulSetup setup(op, "Y");
  setup.x_cut = op.attr<int32_t>("x_num_col_dims");
  setup.y_cut = op.attr<int32_t>("y_num_col_dims");
  return setup;
}

StatusOr<Kernel> mul(const KernelSetup& op) {
  return Kernel([setup = mul_setup(op),
                 product = MatrixProduct(1.0F, wants_bf16(op))](const KernelContext& ctx) {
    return setup.forward(ctx, product, /*accumulate=*/false);
  });
}
StatusOr<Kernel> mul_grad(const KernelSetup& op) {
  return Kernel([setup = mul_setup(op), for_x = MatrixProduct(1.0F, wants_bf16(op)),
                 for_y = MatrixProduct(1.0F, wants_bf16(op))](const KernelContext& ctx) {
    return setup.backward(ctx, for_x, for_y);
  });
}

StatusOr<Kernel> mv(const KernelSetup& op) {
  return Kernel([setup = MulSetup(op, "Vec"), product = MatrixProduct()](const KernelContext& ctx) {
    return setup.forward(ctx, product, /*accumulate=*/false);
  });
}
StatusOr<Kernel> mv_grad(const KernelSetup& op) {
  return Kernel([setup = MulSetup(op, "Vec"), for_x = MatrixProduct(), for_y = MatrixProduct()](
                    const KernelContext& ctx) { return setup.backward(ctx, for_x, for_y); });
}

// out = beta * input, or input gradient = beta * out gradient.
template <typename T>
void scaled(const T* from, int64_t count, double beta, T* to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<T>(static_cast<Compute<T>>(beta) * static_cast<Compute<T>>(from[i]));
}

StatusOr<Kernel> addmm(const KernelSetup& op) {
  return Kernel(
      [setup = MulSetup(op, "Y"), input_arg = op.input("Input"), beta = op.attr<float>("Beta"),
       product = MatrixProduct(op.attr<float>("Alpha"))](const KernelContext& ctx) -> Status {
        const Tensor& input = ctx.in(input_arg);
        Tensor& out = ctx.out(setup.out);
        MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest nest,
                                  broadcast_nest(out.dims(), input.dims(), -1));
        if (nest.count() != out.numel() || input.dtype() != out.dtype())
          return ctx.error("Input {} cannot be broadcast to {}", describe(input), describe(out));
        MILLRACE_RETURN_IF_ERROR(dispatch<AllFloatTypes>(out.dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          const bool once = nest.run_stride()[kOfY] == 0;
          nest.each_run([&](const BroadcastNest::Offsets& at, int64_t count) {
            T* const to = out.data<T>() + at[kOfOut];
            const T* const from = input.data<T>() + at[kOfY];
            if (!once) return scaled(from, count, beta, to);
            T first;
            scaled(from, 1, beta, &first);
            std::fill_n(to, count, first);
          });
          return Ok();
        }));
        return setup.forward(ctx, product, /*accumulate=*/true);
      });
}

StatusOr<Kernel> addmm_grad(const KernelSetup& op) {
  const auto alpha = op.attr<float>("Alpha");
  return Kernel([setup = MulSetup(op, "Y"), dinput_arg = op.output("Input@GRAD"),
                 beta = op.attr<float>("Beta"), for_x = MatrixProduct(alpha),
                 for_y = MatrixProduct(alpha)](const KernelContext& ctx) -> Status {
    if (Tensor* const dinput = ctx.find_out(dinput_arg)) {
      const Tensor& dout = ctx.in(setup.dout);
      MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest nest,
                                broadcast_nest(dout.dims(), dinput->dims(), -1));
      if (nest.count() != dout.numel() || dinput->dtype() != dout.dtype())
        return ctx.error("Input@GRAD is {}, but Out@GRAD is {}", describe(*dinput), describe(dout));
      MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(dout.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* const to = dinput->data<T>();
        run_copied_grad(ctx.device(), nest, kOfY, /*negative=*/false, dout.data<T>(), to,
                        dinput->numel());
        scaled(to, dinput->numel(), beta, to);
        return Ok();
      }));
    }
    return setup.backward(ctx, for_x, for_y);
  });
}

}  // namespace
}  // namespace mul_kernels

/// mul, mv, addmm with their gradients.
void add_math_mul(KernelRegistry& registry) {
  using namespace mul_kernels;
  registry.add("mul", mul);
  registry.add("mul_grad", mul_grad);
  registry.add("summed_mul_grad", mul_grad);
  registry.add("mv", mv);
  registry.add("mv_grad", mv_grad);
  registry.add("addmm", addmm);
  registry.add("addmm_grad", addmm_grad);
}

}  // namespace millrace::kernels
