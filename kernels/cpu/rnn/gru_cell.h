#pragma once

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/sequence/gate_activation.h"
#include "kernels/device.h"

// The GRU cell of gru, gru_unit and fusion_gru. With gates u (update), r (reset) and the candidate
// n:
//
//   h = h' + u * (n - h'),  n = f(x_n + (r * h') W_n)
//
// origin_mode exchanges u and 1 - u. The cell of the op `rnn` (dense_cells.h) differs. Weights,
// gates and states are row-major; T is float or double.
namespace millrace::kernels::rnn {

/// Attributes of a GRU op.
struct GruFunctions {
  Activation gate = Activation::kSigmoid;  ///< of update and reset gate
  Activation candidate = Activation::kTanh;
  bool origin = false;  ///< the update gate weights the old state, not the new one
};

/// The weights are stored one after the other: [size, 2 * size] of update and reset gate, then
/// [size, size] of the candidate.
template <typename T>
const T* candidate_weights(const T* weights, int64_t size) {
  return weights + 2 * size * size;
}

/// One time step of rows with `size` cells. Order of the gates of a row: update, reset, candidate.
/// \param rows      independent rows, such as the sequences that reach this time step
/// \param weights   [size, 3 * size] as described at candidate_weights()
/// \param hidden    out: new states, [rows, size]
/// Errors: kResource.
/// \param gates     in: sums from the input; out: results of the activation functions
/// \param previous  previous states, null for zero
/// \param reset     out: previous states multiplied by the reset gate
template <typename T>
Status gru_step(CpuDevice& device, Gemm& gemm, const GruFunctions& f, int64_t rows, int64_t size,
                const T* weights, T* gates, const T* previous, T* reset, T* hidden) {
  // update and reset gate of all rows in one product; the candidate needs the reset gate first
  if (previous != nullptr) {
    MILLRACE_RETURN_IF_ERROR(gemm(device,
                                  {.rows = rows,
                                   .columns = 2 * size,
                                   .inner = size,
                                   .accumulate = true,
                                   .c_stride = 3 * size},
                                  previous, weights, gates));
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* const row = gates + r * 3 * size;
    T* const out = reset + r * size;
    activate(f.gate, row, 2 * size);
    if (previous == nullptr) {
      std::fill_n(out, size, T(0));
      continue;
    }
    const T* const before = previous + r * size;
    for (int64_t k = 0; k < size; ++k) out[k] = row[size + k] * before[k];
  }
  if (previous != nullptr) {
    MILLRACE_RETURN_IF_ERROR(gemm(
        device,
        {.rows = rows, .columns = size, .inner = size, .accumulate = true, .c_stride = 3 * size},
        reset, candidate_weights(weights, size), gates + 2 * size));
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* const update = gates + r * 3 * size;
    T* const candidate = update + 2 * size;
    activate(f.candidate, candidate, size);
    T* const h = hidden + r * size;
    for (int64_t k = 0; k < size; ++k) {
      const T before = previous == nullptr ? T(0) : previous[r * size + k];
      // weight of the candidate
      const T share = f.origin ? 1 - update[k] : update[k];
      h[k] = before + share * (candidate[k] - before);
    }
  }
  return Ok();
}

/// Gradient of one time step.
/// \param gates      as gru_step() left them
/// \param dhidden    gradient of the new states
/// \param dgates     out: gradient of the sums
/// \param dprevious  the gradient of the previous states is added to it; null if not requested
/// \param dreset     scratch, rows * size elements
template <typename T>
Status gru_step_grad(CpuDevice& device, Gemm& gemm, const GruFunctions& f, int64_t rows,
                     int64_t size, const T* weights, const T* gates, const T* previous,
                     const T* dhidden, T* dgates, T* dprevious, T* dreset) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* const update = gates + r * 3 * size;
    const T* const candidate = update + 2 * size;
    T* const dupdate = dgates + r * 3 * size;
    T* const dcandidate = dupdate + 2 * size;
    const T* const dh = dhidden + r * size;
    for (int64_t k = 0; k < size; ++k) {
      const T before = previous == nullptr ? T(0) : previous[r * size + k];
      const T share = f.origin ? 1 - update[k] : update[k];
      const T slope = dh[k] * (candidate[k] - before);
      dupdate[k] = f.origin ? -slope : slope;
      dcandidate[k] = dh[k] * share;
      if (dprevious != nullptr) dprevious[r * size + k] += dh[k] * (1 - share);
    }
    multiply_slope(f.candidate, candidate, dcandidate, size);
  }
  MILLRACE_RETURN_IF_ERROR(gemm(
      device,
      {.rows = rows, .columns = size, .inner = size, .b_transposed = true, .a_stride = 3 * size},
      dgates + 2 * size, candidate_weights(weights, size), dreset));
  for (int64_t r = 0; r < rows; ++r) {
    const T* const row = gates + r * 3 * size;
    T* const drow = dgates + r * 3 * size;
    const T* const d = dreset + r * size;
    for (int64_t k = 0; k < size; ++k) {
      const T before = previous == nullptr ? T(0) : previous[r * size + k];
      // the reset gate and the state are factors of each other
      drow[size + k] = d[k] * before;
      if (dprevious != nullptr) dprevious[r * size + k] += d[k] * row[size + k];
    }
    multiply_slope(f.gate, row, drow, 2 * size);
  }
  if (dprevious == nullptr) return Ok();
  return gemm(device,
              {.rows = rows,
               .columns = size,
               .inner = 2 * size,
               .b_transposed = true,
               .accumulate = true,
               .a_stride = 3 * size},
              dgates, weights, dprevious);
}

/// Gradient of the weights over any number of rows: the inputs of the gates times the gradients of
/// their sums.
/// \param previous  states before each row, [rows, size]
/// \param reset     as gru_step() left them, [rows, size]
/// \param dgates    as gru_step_grad() left them, [rows, 3 * size]
/// \param dweights  overwritten, in the order of the weights
template <typename T>
Status gru_weights_grad(CpuDevice& device, Gemm& gemm, int64_t rows, int64_t size,
                        const T* previous, const T* reset, const T* dgates, T* dweights) {
  MILLRACE_RETURN_IF_ERROR(gemm(device,
                                {.rows = size,
                                 .columns = 2 * size,
                                 .inner = rows,
                                 .a_transposed = true,
                                 .b_stride = 3 * size},
                                previous, dgates, dweights));
  return gemm(
      device,
      {.rows = size, .columns = size, .inner = rows, .a_transposed = true, .b_stride = 3 * size},
      reset, dgates + 2 * size, dweights + 2 * size * size);
}

}  // namespace millrace::kernels::rnn
