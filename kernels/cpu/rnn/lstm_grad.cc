#include <algorithm>
#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/rnn/common_gradients.h"
#include "kernels/cpu/rnn/lstm_tensors.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/registry.h"

// Gradients of lstm and lstmp: processes the time steps from last to first. The gradients of the
// weights, which all time steps share, are computed by one matrix product at the end.
namespace millrace::kernels::rnn {
namespace lstm_grad_kernels {
namespace {

struct LstmGradGradSlots {
  ArgIndex fed_back;
  ArgIndex dfed_back;
  ArgIndex cell;
  ArgIndex gates;
  ArgIndex hidden;  // lstmp only
  ArgIndex dinput;
  ArgIndex dweight;
  ArgIndex dbias;
  ArgIndex dprojection;
  ArgIndex dh0;
  ArgIndex dc0;
};

struct LstmGradGradTensors {
  const Tensor* fed_back = nullptr;
  const Tensor* dfed_back = nullptr;
  const Tensor* cell = nullptr;
  const Tensor* gates = nullptr;
  const Tensor* hidden = nullptr;
  Tensor* dinput = nullptr;
  Tensor* dweight = nullptr;
  Tensor* dbias = nullptr;
  Tensor* dprojection = nullptr;
  Tensor* dh0 = nullptr;
  Tensor* dc0 = nullptr;
};

enum LstmGradPiece : size_t {
  kLstmBackFed,
  kLstmBackFedGrad,
  kLstmBackCells,
  kLstmBackCellGrad,
  kLstmBackGateGrad,
  kLstmBackHiddenGrad,
  kLstmBackBefore,
  kLstmBackBiasGrad,
  kLstmBackScratch,
  kLstmBackH0,
  kLstmBackC0
};

StatusOr<LstmGradGradTensors> grad_tensors(const KernelContext& ctx, const LstmGradGradSlots& slots,
                                           const LstmTensors& t, bool projected) {
  LstmGradGradTensors g;
  MILLRACE_ASSIGN_OR_RETURN(g.fed_back,
                            needed(ctx, slots.fed_back, projected ? "Projection" : "Hidden"));
  MILLRACE_ASSIGN_OR_RETURN(
      g.dfed_back, needed(ctx, slots.dfed_back, projected ? "Projection@GRAD" : "Hidden@GRAD"));
  MILLRACE_ASSIGN_OR_RETURN(g.cell, needed(ctx, slots.cell, "Cell"));
  MILLRACE_ASSIGN_OR_RETURN(g.gates, needed(ctx, slots.gates, "BatchGate"));
  if (projected) {
    MILLRACE_ASSIGN_OR_RETURN(g.hidden, needed(ctx, slots.hidden, "BatchHidden"));
  }
  const auto fits = [&](const Tensor* tensor, int64_t width) {
    return tensor == nullptr ||
           (tensor->numel() == t.rows * width && tensor->dtype() == t.input->dtype());
  };
  if (!fits(g.fed_back, t.width) || !fits(g.dfed_back, t.width) || !fits(g.cell, t.size) ||
      !fits(g.gates, 4 * t.size) || !fits(g.hidden, t.size))
    return ctx.error("outputs of the forward op must have the {} rows of Input", t.rows);
  MILLRACE_RETURN_IF_ERROR(size_common_gradients(ctx, slots, t, g));
  if (projected) {
    MILLRACE_ASSIGN_OR_RETURN(g.dprojection, result_like(ctx, slots.dprojection, *t.projection));
  }
  if (t.c0 != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(g.dc0, result_like(ctx, slots.dc0, *t.c0));
  }
  return g;
}

// Gradient of the input of a projection: back through clipping and activation function.
template <typename T>
void unproject(const LstmSettings& s, const T* y, T* grad, int64_t count) {
  if (s.projection_clip > 0) {
    const T bound = static_cast<T>(s.projection_clip);
    for (int64_t i = 0; i < count; ++i) grad[i] = std::abs(y[i]) < bound ? grad[i] : T(0);
  }
  multiply_slope(s.projection, y, grad, count);
}

// One call and its buffers.
template <typename T>
struct Pass {
  const KernelContext& ctx;
  const LstmTensors& t;
  const LstmSettings& s;
  const LstmGradGradTensors& g;
  const StepOrder& order;
  Workspace& work;
  Gemm& gemm;

  T* fed = nullptr;   // rows in time-step order, like the following ones
  T* dfed = nullptr;  // gradient of the state that is fed back
  T* cells = nullptr;
  T* dcells = nullptr;  // gradient of the cell states of a time step, then of the previous ones
  T* dgates = nullptr;
  T* dhidden = nullptr;  // for one time step; without a projection this is dfed
  T* dbias = nullptr;    // 7 * size elements
  T* scratch = nullptr;
  const T* c0 = nullptr;

  Status open();
  Status step(int64_t step);
  Status weights();
  Status run();
};

template <typename T>
Status Pass<T>::open() {
  MILLRACE_ASSIGN_OR_RETURN(fed, work.take<T>(kLstmBackFed, t.rows * t.width));
  MILLRACE_ASSIGN_OR_RETURN(dfed, work.take<T>(kLstmBackFedGrad, t.rows * t.width));
  MILLRACE_ASSIGN_OR_RETURN(cells, work.take<T>(kLstmBackCells, t.rows * t.size));
  MILLRACE_ASSIGN_OR_RETURN(dcells, work.take<T>(kLstmBackCellGrad, order.sequences() * t.size));
  MILLRACE_ASSIGN_OR_RETURN(dgates, work.take<T>(kLstmBackGateGrad, t.rows * 4 * t.size));
  MILLRACE_ASSIGN_OR_RETURN(dbias, work.take<T>(kLstmBackBiasGrad, 7 * t.size));
  MILLRACE_ASSIGN_OR_RETURN(scratch, work.take<T>(kLstmBackScratch, 2 * t.size));
  if (t.projection != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(dhidden, work.take<T>(kLstmBackHiddenGrad, t.rows * t.size));
  }
  std::fill_n(dcells, order.sequences() * t.size, T(0));
  std::fill_n(dbias, 7 * t.size, T(0));
  order.gather(g.fed_back->data<T>(), t.width, fed);
  order.gather(g.dfed_back->data<T>(), t.width, dfed);
  order.gather(g.cell->data<T>(), t.size, cells);
  if (t.c0 != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(T* const first,
                              work.take<T>(kLstmBackC0, order.sequences() * t.size));
    order.gather_sequences(t.c0->data<T>(), t.size, first);
    c0 = first;
  }
  return Ok();
}

template <typename T>
Status Pass<T>::step(int64_t step) {
  const int64_t begin = order.start(step);
  const int64_t rows = order.count(step);
  const int64_t before = step == 0 ? 0 : order.start(step - 1);
  T* dh = dfed + begin * t.width;
  if (t.projection != nullptr) {
    unproject(s, fed + begin * t.width, dh, rows * t.width);
    MILLRACE_RETURN_IF_ERROR(gemm(
        ctx.device(), {.rows = rows, .columns = t.size, .inner = t.width, .b_transposed = true}, dh,
        t.projection->data<T>(), dhidden + begin * t.size));
    dh = dhidden + begin * t.size;
  }
  lstm_step_grad(s.functions, rows, t.size, peepholes_of<T>(t, s),
                 g.gates->data<T>() + begin * 4 * t.size, step == 0 ? c0 : cells + before * t.size,
                 cells + begin * t.size, dh, dcells, dgates + begin * 4 * t.size,
                 dbias + 4 * t.size, scratch);
  if (step == 0) return Ok();
  // gradient of the state that was fed back into this time step
  return gemm(ctx.device(),
              {.rows = rows,
               .columns = t.width,
               .inner = 4 * t.size,
               .b_transposed = true,
               .accumulate = true},
              dgates + begin * 4 * t.size, t.weight->data<T>(), dfed + before * t.width);
}

// Gradients of the weights over all time steps at once.
template <typename T>
Status Pass<T>::weights() {
  if (g.dweight != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(T* const before, work.take<T>(kLstmBackBefore, t.rows * t.width));
    const int64_t first = order.steps() == 0 ? 0 : order.count(0);
    if (t.h0 != nullptr) {
      order.gather_starting(t.h0->data<T>(), t.width, before);
    } else {
      std::fill_n(before, first * t.width, T(0));
    }
    for (int64_t step = 1; step < order.steps(); ++step)
      std::copy_n(fed + order.start(step - 1) * t.width, order.count(step) * t.width,
                  before + order.start(step) * t.width);
    MILLRACE_RETURN_IF_ERROR(
        gemm(ctx.device(),
             {.rows = t.width, .columns = 4 * t.size, .inner = t.rows, .a_transposed = true},
             before, dgates, g.dweight->data<T>()));
  }
  if (g.dprojection != nullptr) {
    MILLRACE_RETURN_IF_ERROR(gemm(
        ctx.device(), {.rows = t.size, .columns = t.width, .inner = t.rows, .a_transposed = true},
        g.hidden->data<T>(), dfed, g.dprojection->data<T>()));
  }
  if (g.dbias != nullptr) {
    add_columns(dgates, t.rows, 4 * t.size, dbias);
    std::copy_n(dbias, g.dbias->numel(), g.dbias->data<T>());
  }
  return Ok();
}

template <typename T>
Status Pass<T>::run() {
  MILLRACE_RETURN_IF_ERROR(open());
  for (int64_t i = order.steps() - 1; i >= 0; --i) MILLRACE_RETURN_IF_ERROR(step(i));
  MILLRACE_RETURN_IF_ERROR(weights());
  if (g.dinput != nullptr) order.scatter(dgates, 4 * t.size, g.dinput->data<T>());
  // sequences without rows have no time steps: the gradient of their first states is zero
  const int64_t first = order.steps() == 0 ? 0 : order.count(0);
  if (g.dc0 != nullptr) order.scatter_sequences(dcells, t.size, g.dc0->data<T>());
  if (g.dh0 == nullptr) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(T* const dh0, work.take<T>(kLstmBackH0, order.sequences() * t.width));
  std::fill_n(dh0, order.sequences() * t.width, T(0));
  MILLRACE_RETURN_IF_ERROR(gemm(
      ctx.device(), {.rows = first, .columns = t.width, .inner = 4 * t.size, .b_transposed = true},
      dgates, t.weight->data<T>(), dh0));
  order.scatter_sequences(dh0, t.width, g.dh0->data<T>());
  return Ok();
}

StatusOr<Kernel> make_grad(const KernelSetup& op, bool projected) {
  const LstmSlots slots = lstm_slots(op);
  const LstmSettings settings = lstm_settings(op, projected);
  const LstmGradGradSlots grads{op.input(projected ? "Projection" : "Hidden"),
                                op.input(projected ? "Projection@GRAD" : "Hidden@GRAD"),
                                op.input("Cell"),
                                op.input("BatchGate"),
                                op.input("BatchHidden"),
                                op.output("Input@GRAD"),
                                op.output("Weight@GRAD"),
                                op.output("Bias@GRAD"),
                                op.output("ProjWeight@GRAD"),
                                op.output("H0@GRAD"),
                                op.output("C0@GRAD")};
  const auto state = std::make_shared<LstmState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LstmTensors t, lstm_tensors(ctx, slots, settings, projected));
    MILLRACE_ASSIGN_OR_RETURN(const LstmGradGradTensors g, grad_tensors(ctx, grads, t, projected));
    state->order.build(t.input->lod().last(), settings.reverse);
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return Pass<T>{ctx, t, settings, g, state->order, state->work, state->gemm}.run();
    });
  });
}

StatusOr<Kernel> lstm_grad(const KernelSetup& op) {
  return make_grad(op, false);
}
StatusOr<Kernel> lstmp_grad(const KernelSetup& op) {
  return make_grad(op, true);
}

}  // namespace
}  // namespace lstm_grad_kernels
}  // namespace millrace::kernels::rnn

namespace millrace::kernels {

void add_rnn_lstm_grad(KernelRegistry& registry) {
  registry.add("lstm_grad", rnn::lstm_grad_kernels::lstm_grad);
  registry.add("lstmp_grad", rnn::lstm_grad_kernels::lstmp_grad);
}

}  // namespace millrace::kernels
