#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Out[:, k] = the row-wise dot product of (X times Weight[k]) and Y.
namespace millrace::kernels {
namespace bilinear_kernels {
namespace {

struct BilinearOperands {
  const Tensor* x = nullptr;
  const Tensor* y = nullptr;
  const Tensor* weight = nullptr;
  const Tensor* bias = nullptr;  // optional
  int64_t rows = 0;
  int64_t width_x = 0;
  int64_t width_y = 0;
  int64_t columns = 0;
};

struct OperandSlots {
  ArgIndex x;
  ArgIndex y;
  ArgIndex weight;
  ArgIndex bias;
};
OperandSlots operand_slots(const KernelSetup& op) {
  return {op.input("X"), op.input("Y"), op.input("Weight"), op.input("Bias")};
}

StatusOr<BilinearOperands> operands(const KernelContext& ctx, const OperandSlots& slots) {
  BilinearOperands o;
  MILLRACE_ASSIGN_OR_RETURN(o.x, needed(ctx, slots.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(o.y, needed(ctx, slots.y, "Y"));
  MILLRACE_ASSIGN_OR_RETURN(o.weight, needed(ctx, slots.weight, "Weight"));
  o.bias = ctx.find_in(slots.bias);
  if (o.x->rank() != 2 || o.y->rank() != 2 || o.weight->rank() != 3 || o.y->dim(0) != o.x->dim(0) ||
      o.weight->dim(1) != o.x->dim(1) || o.weight->dim(2) != o.y->dim(1) ||
      o.y->dtype() != o.x->dtype() || o.weight->dtype() != o.x->dtype())
    return ctx.error("Weight must be [columns, {}, {}] for X {} and Y {}, found {}",
                     o.x->rank() == 2 ? o.x->dim(1) : -1, o.y->rank() == 2 ? o.y->dim(1) : -1,
                     describe(*o.x), describe(*o.y), describe(*o.weight));
  o.rows = o.x->dim(0);
  o.width_x = o.x->dim(1);
  o.width_y = o.y->dim(1);
  o.columns = o.weight->dim(0);
  if (o.bias != nullptr && (o.bias->numel() != o.columns || o.bias->dtype() != o.x->dtype()))
    return ctx.error("Bias must have {} elements, found {}", o.columns, describe(*o.bias));
  return o;
}

struct BilinearState {
  Gemm gemm;
  Workspace work;
};

template <typename T>
Status forward(const KernelContext& ctx, const BilinearOperands& o, Tensor& out,
               BilinearState& state) {
  MILLRACE_ASSIGN_OR_RETURN(T* const product, state.work.take<T>(0, o.rows * o.width_y));
  for (int64_t k = 0; k < o.columns; ++k) {
    MILLRACE_RETURN_IF_ERROR(
        state.gemm(ctx.device(), {.rows = o.rows, .columns = o.width_y, .inner = o.width_x},
                   o.x->data<T>(), o.weight->data<T>() + k * o.width_x * o.width_y, product));
    for (int64_t r = 0; r < o.rows; ++r) {
      const T* const a = product + r * o.width_y;
      const T* const b = o.y->data<T>() + r * o.width_y;
      out.data<T>()[r * o.columns + k] =
          lane_sum<T>(o.width_y, [&](int64_t i) { return a[i] * b[i]; }) +
          (o.bias == nullptr ? T(0) : o.bias->data<T>()[k]);
    }
  }
  return Ok();
}

StatusOr<Kernel> bilinear(const KernelSetup& op) {
  const OperandSlots slots = operand_slots(op);
  const ArgIndex out = op.output("Out");
  auto state = std::make_shared<BilinearState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const BilinearOperands o, operands(ctx, slots));
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) {
      return forward<typename decltype(tag)::type>(ctx, o, ctx.out(out), *state);
    });
  });
}

struct BilinearGrads {
  const Tensor* dout = nullptr;
  Tensor* dx = nullptr;
  Tensor* dy = nullptr;
  Tensor* dweight = nullptr;
  Tensor* dbias = nullptr;
};

// to[r] = from[r] * dout[r, k]
template <typename T>
void weigh_rows(const BilinearOperands& o, const T* dout, int64_t k, const T* from, int64_t width,
                T* to) {
  for (int64_t r = 0; r < o.rows; ++r) {
    const T weight = dout[r * o.columns + k];
    for (int64_t i = 0; i < width; ++i) to[r * width + i] = from[r * width + i] * weight;
  }
}

template <typename T>
Status column_grad(const KernelContext& ctx, const BilinearOperands& o, const BilinearGrads& g,
                   int64_t k, BilinearState& state) {
  const T* const dout = g.dout->data<T>();
  const T* const weight = o.weight->data<T>() + k * o.width_x * o.width_y;
  MILLRACE_ASSIGN_OR_RETURN(T* const x, state.work.take<T>(1, o.rows * o.width_x));
  weigh_rows(o, dout, k, o.x->data<T>(), o.width_x, x);
  if (g.dy != nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        state.gemm(ctx.device(),
                   {.rows = o.rows, .columns = o.width_y, .inner = o.width_x, .accumulate = k > 0},
                   x, weight, g.dy->data<T>()));
  }
  if (g.dweight != nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        state.gemm(ctx.device(),
                   {.rows = o.width_x, .columns = o.width_y, .inner = o.rows, .a_transposed = true},
                   x, o.y->data<T>(), g.dweight->data<T>() + k * o.width_x * o.width_y));
  }
  if (g.dx != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(T* const y, state.work.take<T>(0, o.rows * o.width_y));
    weigh_rows(o, dout, k, o.y->data<T>(), o.width_y, y);
    MILLRACE_RETURN_IF_ERROR(state.gemm(ctx.device(),
                                        {.rows = o.rows,
                                         .columns = o.width_x,
                                         .inner = o.width_y,
                                         .b_transposed = true,
                                         .accumulate = k > 0},
                                        y, weight, g.dx->data<T>()));
  }
  if (g.dbias != nullptr) {
    g.dbias->data<T>()[k] = lane_sum<T>(o.rows, [&](int64_t r) { return dout[r * o.columns + k]; });
  }
  return Ok();
}

StatusOr<Kernel> bilinear_grad(const KernelSetup& op) {
  const OperandSlots slots = operand_slots(op);
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dy = op.output("Y@GRAD");
  const ArgIndex dweight = op.output("Weight@GRAD");
  const ArgIndex dbias = op.output("Bias@GRAD");
  auto state = std::make_shared<BilinearState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const BilinearOperands o, operands(ctx, slots));
    BilinearGrads g;
    MILLRACE_ASSIGN_OR_RETURN(g.dout, needed(ctx, dout, "Out@GRAD"));
    if (g.dout->numel() != o.rows * o.columns || g.dout->dtype() != o.x->dtype())
      return ctx.error("Out@GRAD must be [{}, {}], found {}", o.rows, o.columns, describe(*g.dout));
    MILLRACE_ASSIGN_OR_RETURN(g.dx, result_like(ctx, dx, *o.x));
    MILLRACE_ASSIGN_OR_RETURN(g.dy, result_like(ctx, dy, *o.y));
    MILLRACE_ASSIGN_OR_RETURN(g.dweight, result_like(ctx, dweight, *o.weight));
    if (dbias) {
      Tensor& to = ctx.out(dbias);
      MILLRACE_RETURN_IF_ERROR(size_output(to, o.x->dtype(), {1, o.columns}));
      g.dbias = &to;
    }
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) -> Status {
      for (int64_t k = 0; k < o.columns; ++k)
        MILLRACE_RETURN_IF_ERROR(column_grad<typename decltype(tag)::type>(ctx, o, g, k, *state));
      return Ok();
    });
  });
}

}  // namespace
}  // namespace bilinear_kernels

void add_feature_bilinear(KernelRegistry& registry) {
  using namespace bilinear_kernels;
  registry.add("bilinear_tensor_product", bilinear);
  registry.add("bilinear_tensor_product_grad", bilinear_grad);
}

}  // namespace millrace::kernels
