#pragma once

#include "kernels/cpu/rnn/dense_tensors.h"
#include "kernels/cpu/sequence/gate_activation.h"

// The cells of the op `rnn` (dense_rnn.cc), one row of the batch at a time; the products with the
// weights are done for all rows together before. T is float or double.
namespace millrace::kernels::rnn {

/// One row of one time step. Gates of LSTM: input, forget, candidate, output; of GRU: reset,
/// update, candidate.
/// All pointers are to the values of this row. Cells without gates (tanh, relu) have one sum per
/// cell.
template <typename T>
struct CellRow {
  T* gates;              ///< in: sums from the input; out: results of the activation functions
  const T* from_state;   ///< sums from the previous state
  const T* before;       ///< previous hidden state
  const T* cell_before;  ///< previous cell state, LSTM only
  T* cell;               ///< cell state; for GRU, the contribution of the state to the candidate
  T* hidden;             ///< out: new hidden state
};

/// Computes one row of one time step, from the sums to the new states.
///
///   LSTM: c = f * c' + i * g,  h = o * tanh(c)
///   GRU:  h = (1 - z) * n + z * h',  n = tanh(x_n + r * s_n)
///
/// where s_n is the sum from the previous state, with its bias: the reset gate is applied after the
/// product, unlike in gru_cell.h.
/// \param size  number of cells
template <typename T>
void cell_row(Mode mode, int64_t size, const CellRow<T>& r) {
  if (mode == Mode::kGru) {
    for (int64_t k = 0; k < 2 * size; ++k) r.gates[k] += r.from_state[k];
    activate(Activation::kSigmoid, r.gates, 2 * size);
    T* const candidate = r.gates + 2 * size;
    for (int64_t k = 0; k < size; ++k) {
      r.cell[k] = r.from_state[2 * size + k];
      candidate[k] += r.gates[k] * r.cell[k];
    }
    activate(Activation::kTanh, candidate, size);
    for (int64_t k = 0; k < size; ++k) {
      // z weights the old state here; in gru_cell.h it weights the new one
      const T update = r.gates[size + k];
      r.hidden[k] = (1 - update) * candidate[k] + update * r.before[k];
    }
    return;
  }
  const int64_t count = mode == Mode::kLstm ? 4 * size : size;
  for (int64_t k = 0; k < count; ++k) r.gates[k] += r.from_state[k];
  if (mode != Mode::kLstm) {
    activate(mode == Mode::kTanh ? Activation::kTanh : Activation::kRelu, r.gates, size);
    for (int64_t k = 0; k < size; ++k) r.hidden[k] = r.gates[k];
    return;
  }
  activate(Activation::kSigmoid, r.gates, 2 * size);
  activate(Activation::kTanh, r.gates + 2 * size, size);
  activate(Activation::kSigmoid, r.gates + 3 * size, size);
  for (int64_t k = 0; k < size; ++k) {
    r.cell[k] = r.gates[size + k] * r.cell_before[k] + r.gates[k] * r.gates[2 * size + k];
    r.hidden[k] = r.gates[3 * size + k] * vmath::tanh(r.cell[k]);
  }
}

/// Gradient of one row of one time step.
template <typename T>
struct CellRowGrad {
  const T* gates;        ///< as cell_row() left them
  const T* cell;         ///< as cell_row() left it
  const T* before;       ///< previous hidden state
  const T* cell_before;  ///< previous cell state, LSTM only
  T* dhidden;  ///< in: gradient of the new state; out: the part that goes directly to the previous
               ///< state
  T* dcell;    ///< LSTM: the same for the cell state
  T* dgates;   ///< out: gradient of the sums from the input
  T* dfrom_state;  ///< out: gradient of the sums from the state; may be dgates except for GRU
};

/// The inverse direction of cell_row(), with the values that it left in gates and cell.
template <typename T>
void cell_row_grad(Mode mode, int64_t size, const CellRowGrad<T>& r) {
  if (mode == Mode::kGru) {
    for (int64_t k = 0; k < size; ++k) {
      const T reset = r.gates[k];
      const T update = r.gates[size + k];
      const T candidate = r.gates[2 * size + k];
      const T dh = r.dhidden[k];
      const T dcandidate = dh * (1 - update) * (1 - candidate * candidate);
      r.dgates[k] = dcandidate * r.cell[k] * reset * (1 - reset);
      r.dgates[size + k] = dh * (r.before[k] - candidate) * update * (1 - update);
      r.dgates[2 * size + k] = dcandidate;
      r.dfrom_state[k] = r.dgates[k];
      r.dfrom_state[size + k] = r.dgates[size + k];
      r.dfrom_state[2 * size + k] = dcandidate * reset;
      r.dhidden[k] = dh * update;
    }
    return;
  }
  if (mode == Mode::kLstm) {
    for (int64_t k = 0; k < size; ++k) {
      const T input = r.gates[k];
      const T forget = r.gates[size + k];
      const T candidate = r.gates[2 * size + k];
      const T output = r.gates[3 * size + k];
      const T active = vmath::tanh(r.cell[k]);
      const T dh = r.dhidden[k];
      // the cell state is used by the next time step and by this hidden state
      const T dc = r.dcell[k] + dh * output * (1 - active * active);
      r.dgates[k] = dc * candidate * input * (1 - input);
      r.dgates[size + k] = dc * r.cell_before[k] * forget * (1 - forget);
      r.dgates[2 * size + k] = dc * input * (1 - candidate * candidate);
      r.dgates[3 * size + k] = dh * active * output * (1 - output);
      r.dcell[k] = dc * forget;
      r.dhidden[k] = 0;
    }
    return;
  }
  for (int64_t k = 0; k < size; ++k) {
    r.dgates[k] = r.dhidden[k];
    r.dhidden[k] = 0;
  }
  multiply_slope(mode == Mode::kTanh ? Activation::kTanh : Activation::kRelu, r.gates, r.dgates,
                 size);
}

}  // namespace millrace::kernels::rnn
