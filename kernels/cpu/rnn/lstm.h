#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rnn/lstm_cell.h"
#include "kernels/cpu/rnn/step_order.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"

/// lstm, and lstmp, which feeds back a projection of the hidden state. Without a projection the
/// hidden state itself is fed back, and `width` is `size`.
namespace millrace::kernels::rnn {

struct LstmSettings {
  LstmFunctions functions;
  Activation projection = Activation::kTanh;
  double projection_clip = 0;
  bool peepholes = false;
  bool reverse = false;
  bool biased_input = false;  ///< the first part of the bias is in the input
};
LstmSettings lstm_settings(const KernelSetup& op, bool projected);

/// Arguments that the op and its gradient have in common.
struct LstmSlots {
  ArgIndex input;
  ArgIndex weight;
  ArgIndex bias;
  ArgIndex projection;  ///< lstmp only
  ArgIndex h0;
  ArgIndex c0;
};
LstmSlots lstm_slots(const KernelSetup& op);

/// Tensors of one call, checked; optional ones may be null.
struct LstmTensors {
  const Tensor* input = nullptr;
  const Tensor* weight = nullptr;
  const Tensor* bias = nullptr;
  const Tensor* projection = nullptr;
  const Tensor* h0 = nullptr;
  const Tensor* c0 = nullptr;
  int64_t rows = 0;
  int64_t size = 0;   ///< cells
  int64_t width = 0;  ///< of what is fed back
};
/// Errors: kExecution for inputs that are missing or do not fit.
StatusOr<LstmTensors> lstm_tensors(const KernelContext& ctx, const LstmSlots& slots,
                                   const LstmSettings& settings, bool projected);

/// Sets the numbers of t from its tensors. Errors: kExecution for tensors that do not fit.
Status measure_lstm(const LstmSettings& settings, LstmTensors& t);

/// Weights of the peepholes inside the bias; null without them.
template <typename T>
const T* peepholes_of(const LstmTensors& t, const LstmSettings& s) {
  return s.peepholes && t.bias != nullptr ? t.bias->data<T>() + 4 * t.size : nullptr;
}

struct LstmOutputs {
  Tensor* fed_back = nullptr;  ///< Hidden or Projection
  Tensor* cell = nullptr;
  Tensor* gates = nullptr;   ///< may be null, as those that follow
  Tensor* cells = nullptr;   ///< in order of the steps
  Tensor* hidden = nullptr;  ///< in order of the steps; lstmp only
};

/// Takes all steps. order: that of the sequences of the input. T: float or double. Errors:
/// kResource.
template <typename T>
Status run_lstm(const KernelContext& ctx, const LstmTensors& t, const LstmSettings& s,
                const LstmOutputs& out, const StepOrder& order, Workspace& work, Gemm& gemm);

StatusOr<Kernel> lstm_grad(const KernelSetup& op);
StatusOr<Kernel> lstmp_grad(const KernelSetup& op);

}  // namespace millrace::kernels::rnn
