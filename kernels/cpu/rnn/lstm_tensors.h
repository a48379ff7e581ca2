#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rnn/lstm_cell.h"
#include "kernels/cpu/rnn/step_order.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"

/// lstm, and lstmp, which feeds back a projection of the hidden state. Without a projection the
/// hidden state itself is fed back, and `width` equals `size`.
namespace millrace::kernels::rnn {

/// Attributes of one op.
struct LstmSettings {
  LstmFunctions functions;                    ///< activations and clipping of the cell
  Activation projection = Activation::kTanh;  ///< applied to the projection
  double projection_clip = 0;                 ///< bound of the projection; 0: none
  bool peepholes = false;                     ///< the bias has three more numbers per cell
  bool reverse = false;                       ///< sequences are read from their last row
  bool biased_input = false;                  ///< the gate bias is already added to the input
};
/// \param projected  the op is lstmp
LstmSettings lstm_settings(const KernelSetup& op, bool projected);

/// Arguments that the op and its gradient share.
struct LstmSlots {
  ArgIndex input;       ///< [rows, 4 * size], already projected
  ArgIndex weight;      ///< [width, 4 * size]
  ArgIndex bias;        ///< [1, 4 * size], or [1, 7 * size] with peepholes
  ArgIndex projection;  ///< lstmp only
  ArgIndex h0;          ///< [sequences, width], optional
  ArgIndex c0;          ///< [sequences, size], optional
};
LstmSlots lstm_slots(const KernelSetup& op);

/// Checked tensors of one call; optional ones may be null.
struct LstmTensors {
  const Tensor* input = nullptr;       ///< [rows, 4 * size]
  const Tensor* weight = nullptr;      ///< [width, 4 * size]
  const Tensor* bias = nullptr;        ///< null: none
  const Tensor* projection = nullptr;  ///< [size, width], lstmp only
  const Tensor* h0 = nullptr;
  const Tensor* c0 = nullptr;  ///< [sequences, size]; null: zeros
  int64_t rows = 0;            ///< of all sequences together
  int64_t size = 0;            ///< number of cells
  int64_t width = 0;           ///< width of the state that is fed back
};
/// Errors: kExecution for inputs that are missing or do not fit.
StatusOr<LstmTensors> lstm_tensors(const KernelContext& ctx, const LstmSlots& slots,
                                   const LstmSettings& settings, bool projected);

/// Sets the sizes in t from its tensors. Errors: kExecution for tensors that do not fit.
Status measure_lstm(const LstmSettings& settings, LstmTensors& t);

/// Peephole weights, which are stored in the bias; null without peepholes.
template <typename T>
const T* peepholes_of(const LstmTensors& t, const LstmSettings& s) {
  return s.peepholes && t.bias != nullptr ? t.bias->data<T>() + 4 * t.size : nullptr;
}

/// Rows of the first two are in the order of the input.
struct LstmOutputs {
  Tensor* fed_back = nullptr;  ///< Hidden or Projection
  Tensor* cell = nullptr;      ///< [rows, size]
  Tensor* gates = nullptr;     ///< may be null, like the following ones
  Tensor* cells = nullptr;     ///< in time-step order
  Tensor* hidden = nullptr;    ///< in time-step order; lstmp only
};

/// Runs all time steps. order: the order of the sequences of the input. T: float or double. Errors:
/// kResource.
/// \param work  buffers for what the program does not request, kept between calls
template <typename T>
Status run_lstm(const KernelContext& ctx, const LstmTensors& t, const LstmSettings& s,
                const LstmOutputs& out, const StepOrder& order, Workspace& work, Gemm& gemm);

/// What an lstm kernel keeps between runs, so that runs with the same sequences allocate nothing.
struct LstmState {
  StepOrder order;  ///< of the sequences of this call
  Workspace work;   ///< buffers for outputs that the program does not request
  Gemm gemm;
};

}  // namespace millrace::kernels::rnn
