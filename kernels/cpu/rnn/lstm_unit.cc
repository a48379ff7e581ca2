#include "kernels/cpu/needed.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// One time step of lstm whose sums are inputs. Order of the gates: input, forget, output,
// candidate.
namespace millrace::kernels {
namespace lstm_unit_kernels {
namespace {

struct LstmUnitExtent {
  int64_t rows = 0;
  int64_t size = 0;
};

StatusOr<LstmUnitExtent> extent_of(const KernelContext& ctx, const Tensor& x,
                                   const Tensor& previous) {
  if (previous.rank() != 2 || x.numel() != 4 * previous.numel() || x.dtype() != previous.dtype())
    return ctx.error("X must have 4 columns for each of C_prev {}, found {}", describe(previous),
                     describe(x));
  return LstmUnitExtent{previous.dim(0), previous.dim(1)};
}

StatusOr<Kernel> lstm_unit(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex previous = op.input("C_prev");
  const ArgIndex cell = op.output("C");
  const ArgIndex hidden = op.output("H");
  const float forget_bias = op.attr<float>("forget_bias");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& sums = ctx.in(x);
    const Tensor& before = ctx.in(previous);
    MILLRACE_ASSIGN_OR_RETURN(const LstmUnitExtent e, extent_of(ctx, sums, before));
    return dispatch<FloatTypes>(sums.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t r = 0; r < e.rows; ++r) {
        const T* const g = sums.data<T>() + r * 4 * e.size;
        const T* const old = before.data<T>() + r * e.size;
        T* const c = ctx.out(cell).data<T>() + r * e.size;
        T* const h = ctx.out(hidden).data<T>() + r * e.size;
        for (int64_t k = 0; k < e.size; ++k) {
          const T forget = vmath::sigmoid(g[e.size + k] + static_cast<T>(forget_bias));
          const T value = forget * old[k] + vmath::sigmoid(g[k]) * vmath::tanh(g[3 * e.size + k]);
          c[k] = value;
          h[k] = vmath::sigmoid(g[2 * e.size + k]) * vmath::tanh(value);
        }
      }
      return Ok();
    });
  });
}

struct GradRow {
  int64_t size;
  double forget_bias;
};

// dc or dh may be null: that output has no gradient.
template <typename T>
void grad_row(const GradRow& row, const T* g, const T* old, const T* c, const T* dc, const T* dh,
              T* dold, T* dg) {
  const int64_t size = row.size;
  for (int64_t k = 0; k < size; ++k) {
    const T input = vmath::sigmoid(g[k]);
    const T forget = vmath::sigmoid(g[size + k] + static_cast<T>(row.forget_bias));
    const T output = vmath::sigmoid(g[2 * size + k]);
    const T candidate = vmath::tanh(g[3 * size + k]);
    const T active = vmath::tanh(c[k]);
    const T from_hidden = dh == nullptr ? T(0) : dh[k];
    const T through = (dc == nullptr ? T(0) : dc[k]) + from_hidden * output * (1 - active * active);
    if (dold != nullptr) dold[k] = through * forget;
    if (dg == nullptr) continue;
    dg[k] = through * candidate * input * (1 - input);
    dg[size + k] = through * old[k] * forget * (1 - forget);
    dg[2 * size + k] = from_hidden * active * output * (1 - output);
    dg[3 * size + k] = through * input * (1 - candidate * candidate);
  }
}

StatusOr<Kernel> lstm_unit_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex previous = op.input("C_prev");
  const ArgIndex cell = op.input("C");
  const ArgIndex dcell = op.input("C@GRAD");
  const ArgIndex dhidden = op.input("H@GRAD");
  const ArgIndex dprevious = op.output("C_prev@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const double forget_bias = op.attr<float>("forget_bias");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const sums, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const before, needed(ctx, previous, "C_prev"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const c, needed(ctx, cell, "C"));
    MILLRACE_ASSIGN_OR_RETURN(const LstmUnitExtent e, extent_of(ctx, *sums, *before));
    const Tensor* const dc = ctx.find_in(dcell);
    const Tensor* const dh = ctx.find_in(dhidden);
    for (const Tensor* const other : {c, dc, dh}) {
      if (other != nullptr &&
          (other->numel() != before->numel() || other->dtype() != before->dtype()))
        return ctx.error("C, C@GRAD and H@GRAD must match C_prev {}, found {}", describe(*before),
                         describe(*other));
    }
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_previous, result_like(ctx, dprevious, *before));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, result_like(ctx, dx, *sums));
    return dispatch<FloatTypes>(sums->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const GradRow row{e.size, forget_bias};
      for (int64_t r = 0; r < e.rows; ++r) {
        const int64_t at = r * e.size;
        grad_row<T>(row, sums->data<T>() + 4 * at, before->data<T>() + at, c->data<T>() + at,
                    dc == nullptr ? nullptr : dc->data<T>() + at,
                    dh == nullptr ? nullptr : dh->data<T>() + at,
                    to_previous == nullptr ? nullptr : to_previous->data<T>() + at,
                    to_x == nullptr ? nullptr : to_x->data<T>() + 4 * at);
      }
      return Ok();
    });
  });
}

}  // namespace
}  // namespace lstm_unit_kernels

void add_rnn_lstm_unit(KernelRegistry& registry) {
  using namespace lstm_unit_kernels;
  registry.add("lstm_unit", lstm_unit);
  registry.add("lstm_unit_grad", lstm_unit_grad);
}

}  // namespace millrace::kernels
