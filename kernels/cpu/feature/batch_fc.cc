#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// batch_fc: a matrix product with bias for each slot.
namespace millrace::kernels {
namespace {

template <typename T>
void add_bias(const T* bias, int64_t rows, int64_t columns, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) out[r * columns + c] += bias[c];
  }
}

struct SlotDims {
  int64_t slots = 0;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t columns = 0;
};

StatusOr<SlotDims> slot_dims(const KernelContext& ctx, const Tensor& x, const Tensor& w,
                             const Tensor* b) {
  if (x.rank() != 3 || w.rank() != 3 || w.dim(0) != x.dim(0) || w.dim(1) != x.dim(2) ||
      w.dtype() != x.dtype())
    return ctx.error("W must be [slots, width, columns] for Input {}, found {}", describe(x),
                     describe(w));
  const SlotDims d{x.dim(0), x.dim(1), x.dim(2), w.dim(2)};
  if (b != nullptr && (b->numel() != d.slots * d.columns || b->dtype() != x.dtype()))
    return ctx.error("Bias must be [{}, {}], found {}", d.slots, d.columns, describe(*b));
  return d;
}

StatusOr<Kernel> batch_fc(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex weight = op.input("W");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex out = op.output("Out");
  auto gemm = std::make_shared<Gemm>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(input);
    const Tensor& w = ctx.in(weight);
    const Tensor* const b = ctx.find_in(bias);
    MILLRACE_ASSIGN_OR_RETURN(const SlotDims d, slot_dims(ctx, x, w, b));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t s = 0; s < d.slots; ++s) {
        T* const to = ctx.out(out).data<T>() + s * d.rows * d.columns;
        MILLRACE_RETURN_IF_ERROR(
            (*gemm)(ctx.device(), {.rows = d.rows, .columns = d.columns, .inner = d.width},
                    x.data<T>() + s * d.rows * d.width, w.data<T>() + s * d.width * d.columns, to));
        if (b != nullptr) add_bias(b->data<T>() + s * d.columns, d.rows, d.columns, to);
      }
      return Ok();
    });
  });
}

struct BatchFcGradTensors {
  const Tensor* x = nullptr;
  const Tensor* w = nullptr;
  const Tensor* dout = nullptr;
  Tensor* dx = nullptr;
  Tensor* dw = nullptr;
  Tensor* db = nullptr;
};

template <typename T>
Status slot_grad(const KernelContext& ctx, const SlotDims& d, const BatchFcGradTensors& g,
                 int64_t s, Gemm& gemm) {
  const T* const dout = g.dout->data<T>() + s * d.rows * d.columns;
  if (g.dx != nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        gemm(ctx.device(),
             {.rows = d.rows, .columns = d.width, .inner = d.columns, .b_transposed = true}, dout,
             g.w->data<T>() + s * d.width * d.columns, g.dx->data<T>() + s * d.rows * d.width));
  }
  if (g.dw != nullptr) {
    MILLRACE_RETURN_IF_ERROR(gemm(
        ctx.device(),
        {.rows = d.width, .columns = d.columns, .inner = d.rows, .a_transposed = true},
        g.x->data<T>() + s * d.rows * d.width, dout, g.dw->data<T>() + s * d.width * d.columns));
  }
  if (g.db == nullptr) return Ok();
  T* const db = g.db->data<T>() + s * d.columns;
  std::fill_n(db, d.columns, T(0));
  for (int64_t r = 0; r < d.rows; ++r) {
    for (int64_t c = 0; c < d.columns; ++c) db[c] += dout[r * d.columns + c];
  }
  return Ok();
}

StatusOr<Kernel> batch_fc_grad(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex weight = op.input("W");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dinput = op.output("Input@GRAD");
  const ArgIndex dweight = op.output("W@GRAD");
  const ArgIndex dbias = op.output("Bias@GRAD");
  auto gemm = std::make_shared<Gemm>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    BatchFcGradTensors g;
    MILLRACE_ASSIGN_OR_RETURN(g.x, needed(ctx, input, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(g.w, needed(ctx, weight, "W"));
    MILLRACE_ASSIGN_OR_RETURN(g.dout, needed(ctx, dout, "Out@GRAD"));
    const Tensor* const b = ctx.find_in(bias);
    MILLRACE_ASSIGN_OR_RETURN(const SlotDims d, slot_dims(ctx, *g.x, *g.w, b));
    if (g.dout->numel() != d.slots * d.rows * d.columns || g.dout->dtype() != g.x->dtype())
      return ctx.error("Out@GRAD must be [{}, {}, {}], found {}", d.slots, d.rows, d.columns,
                       describe(*g.dout));
    MILLRACE_ASSIGN_OR_RETURN(g.dx, result_like(ctx, dinput, *g.x));
    MILLRACE_ASSIGN_OR_RETURN(g.dw, result_like(ctx, dweight, *g.w));
    if (b != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(g.db, result_like(ctx, dbias, *b));
    }
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) -> Status {
      for (int64_t s = 0; s < d.slots; ++s)
        MILLRACE_RETURN_IF_ERROR(slot_grad<typename decltype(tag)::type>(ctx, d, g, s, *gemm));
      return Ok();
    });
  });
}

}  // namespace

void add_feature_batch_fc(KernelRegistry& registry) {
  registry.add("batch_fc", batch_fc);
  registry.add("batch_fc_grad", batch_fc_grad);
}

}  // namespace millrace::kernels
