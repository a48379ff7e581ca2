#pragma once

#include <memory>

#include "kernels/cpu/rnn/gru_cell.h"
#include "kernels/cpu/rnn/step_order.h"
#include "kernels/cpu/workspace.h"
#include "kernels/kernel.h"

/// gru over LoD sequences whose rows are already projected.
namespace millrace::kernels::rnn {

/// Tensors of one call.
struct GruTensors {
  const Tensor* input = nullptr;
  const Tensor* weight = nullptr;
  const Tensor* bias = nullptr;  ///< optional, like h0
  const Tensor* h0 = nullptr;
  int64_t rows = 0;
  int64_t size = 0;
};

/// Sets the sizes in t from its tensors. Errors: kExecution for tensors that do not fit.
Status measure_gru(GruTensors& t);

/// State that a kernel keeps between calls.
struct GruState {
  StepOrder order;
  Workspace work;
  Gemm gemm;
  GruFunctions functions;
  bool reverse = false;
};

/// Reads the attributes that gru and fusion_gru share.
std::shared_ptr<GruState> gru_state(const KernelSetup& op);

struct GruOutputs {
  Tensor* hidden = nullptr;
  Tensor* gates = nullptr;  ///< optional, like the following ones; rows in time-step order
  Tensor* reset = nullptr;
  Tensor* ordered_hidden = nullptr;
};

/// Runs all time steps in the order given by state. T: float or double. Errors: kResource.
template <typename T>
Status run_gru(const KernelContext& ctx, const GruTensors& t, const GruOutputs& out,
               GruState& state);

}  // namespace millrace::kernels::rnn
