#pragma once

#include <memory>

#include "kernels/cpu/rnn/gru_cell.h"
#include "kernels/cpu/rnn/step_order.h"
#include "kernels/cpu/workspace.h"
#include "kernels/kernel.h"

/// gru over LoD sequences whose rows are already projected.
/// gru and fusion_gru share this code; fusion_gru projects its input first.
namespace millrace::kernels::rnn {

/// Tensors of one call.
struct GruTensors {
  const Tensor* input = nullptr;   ///< [rows, 3 * size]
  const Tensor* weight = nullptr;  ///< [size, 3 * size], see gru_cell.h
  const Tensor* bias = nullptr;    ///< optional, like h0
  const Tensor* h0 = nullptr;      ///< [sequences, size]: states before time step 0
  int64_t rows = 0;                ///< of all sequences together
  int64_t size = 0;                ///< number of cells
};

/// Sets the sizes in t from its tensors. Errors: kExecution for tensors that do not fit.
Status measure_gru(GruTensors& t);

/// State that a kernel keeps between calls.
struct GruState {
  StepOrder order;  ///< of the sequences of this call
  Workspace work;   ///< buffers for outputs that the program does not request
  Gemm gemm;
  GruFunctions functions;  ///< activation functions
  bool reverse = false;    ///< sequences are read from their last row
};

/// Reads the attributes that gru and fusion_gru share.
std::shared_ptr<GruState> gru_state(const KernelSetup& op);

/// Rows of hidden are in the order of the input; those of the others in the order of StepOrder.
struct GruOutputs {
  Tensor* hidden = nullptr;          ///< [rows, size]
  Tensor* gates = nullptr;           ///< optional, like the following ones; rows in time-step order
  Tensor* reset = nullptr;           ///< [rows, size]: reset gate times previous state
  Tensor* ordered_hidden = nullptr;  ///< [rows, size]
};

/// Runs all time steps in the order given by state. T: float or double. Errors: kResource.
template <typename T>
Status run_gru(const KernelContext& ctx, const GruTensors& t, const GruOutputs& out,
               GruState& state);

}  // namespace millrace::kernels::rnn
