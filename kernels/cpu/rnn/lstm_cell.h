#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cpu/sequence/gate_activation.h"

// The LSTM cell of lstm, lstmp and the fused ops. With gates i, f, o, candidate g, peepholes p:
//
//   c = g * i(+ p_i c') + c' * f(+ p_f c'),  h = o(+ p_o c) * f_cell(c)
//
// Gates, cells and states are row-major; T is float or double.
namespace millrace::kernels::rnn {

/// Attributes of an LSTM op.
struct LstmFunctions {
  Activation gate = Activation::kSigmoid;    ///< of input, forget and output gate
  Activation cell = Activation::kTanh;       ///< of the cell state, before the output gate
  Activation candidate = Activation::kTanh;  ///< of the candidate
  double cell_clip = 0;                      ///< clipping bound of the cell state; 0: none
};

/// Peephole weights [3 * size] of the gates on the cell state: input, forget, output. Null: none.
template <typename T>
using Peepholes = const T*;

/// One time step of rows with `size` cells. Order of the gates of a row: candidate, input, forget,
/// output.
/// \param gates     in: sums; out: results of the activation functions
/// \param previous  previous cell states, null for zero
/// \param cells     out: new cell states, [rows, size]
/// \param hidden    out: new hidden states, [rows, size]
/// \param scratch   size elements
template <typename T>
void lstm_step(const LstmFunctions& f, int64_t rows, int64_t size, Peepholes<T> peepholes, T* gates,
               const T* previous, T* cells, T* hidden, T* scratch) {
  for (int64_t r = 0; r < rows; ++r) {
    T* const candidate = gates + r * 4 * size;
    T* const input = candidate + size;
    T* const forget = input + size;
    T* const output = forget + size;
    const T* const before = previous == nullptr ? nullptr : previous + r * size;
    T* const cell = cells + r * size;
    // input and forget gate see the old cell state, the output gate the new one
    if (peepholes != nullptr && before != nullptr) {
      for (int64_t k = 0; k < size; ++k) input[k] += before[k] * peepholes[k];
      for (int64_t k = 0; k < size; ++k) forget[k] += before[k] * peepholes[size + k];
    }
    activate(f.candidate, candidate, size);
    activate(f.gate, input, 2 * size);
    for (int64_t k = 0; k < size; ++k) cell[k] = candidate[k] * input[k];
    if (before != nullptr) {
      for (int64_t k = 0; k < size; ++k) cell[k] += before[k] * forget[k];
    }
    if (f.cell_clip > 0) {
      const T bound = static_cast<T>(f.cell_clip);
      for (int64_t k = 0; k < size; ++k) cell[k] = std::clamp(cell[k], -bound, bound);
    }
    if (peepholes != nullptr) {
      for (int64_t k = 0; k < size; ++k) output[k] += cell[k] * peepholes[2 * size + k];
    }
    activate(f.gate, output, size);
    std::copy_n(cell, size, scratch);
    activate(f.cell, scratch, size);
    T* const h = hidden + r * size;
    for (int64_t k = 0; k < size; ++k) h[k] = output[k] * scratch[k];
  }
}

/// Gradient of one time step.
/// \param gates       as lstm_step() left them
/// \param dhidden     gradient of the hidden states
/// \param dcells      in: gradient of the cell states from later time steps; out: gradient of the
///                    previous cell states
/// \param dgates      out: gradient of the sums
/// \param dpeepholes  is added to; null without peepholes
/// \param scratch     2 * size elements
template <typename T>
void lstm_step_grad(const LstmFunctions& f, int64_t rows, int64_t size, Peepholes<T> peepholes,
                    const T* gates, const T* previous, const T* cells, const T* dhidden, T* dcells,
                    T* dgates, T* dpeepholes, T* scratch) {
  T* const active = scratch;
  T* const through = scratch + size;
  for (int64_t r = 0; r < rows; ++r) {
    const T* const candidate = gates + r * 4 * size;
    const T* const input = candidate + size;
    const T* const forget = input + size;
    const T* const output = forget + size;
    const T* const before = previous == nullptr ? nullptr : previous + r * size;
    const T* const cell = cells + r * size;
    const T* const dh = dhidden + r * size;
    T* const dc = dcells + r * size;
    T* const dcandidate = dgates + r * 4 * size;
    T* const dinput = dcandidate + size;
    T* const dforget = dinput + size;
    T* const doutput = dforget + size;
    std::copy_n(cell, size, active);
    activate(f.cell, active, size);
    for (int64_t k = 0; k < size; ++k) doutput[k] = dh[k] * active[k];
    multiply_slope(f.gate, output, doutput, size);
    for (int64_t k = 0; k < size; ++k) through[k] = dh[k] * output[k];
    multiply_slope(f.cell, active, through, size);
    for (int64_t k = 0; k < size; ++k) dc[k] += through[k];
    if (peepholes != nullptr) {
      for (int64_t k = 0; k < size; ++k) dc[k] += doutput[k] * peepholes[2 * size + k];
    }
    // a clipped state does not depend on the sums
    if (f.cell_clip > 0) {
      const T bound = static_cast<T>(f.cell_clip);
      for (int64_t k = 0; k < size; ++k) dc[k] = std::abs(cell[k]) < bound ? dc[k] : T(0);
    }
    for (int64_t k = 0; k < size; ++k) dcandidate[k] = dc[k] * input[k];
    multiply_slope(f.candidate, candidate, dcandidate, size);
    for (int64_t k = 0; k < size; ++k) dinput[k] = dc[k] * candidate[k];
    for (int64_t k = 0; k < size; ++k) dforget[k] = before == nullptr ? T(0) : dc[k] * before[k];
    multiply_slope(f.gate, input, dinput, 2 * size);
    // the previous cell state, directly and through the peepholes
    for (int64_t k = 0; k < size; ++k) dc[k] *= forget[k];
    if (peepholes == nullptr) continue;
    for (int64_t k = 0; k < size; ++k)
      dc[k] += dinput[k] * peepholes[k] + dforget[k] * peepholes[size + k];
    if (dpeepholes == nullptr) continue;
    for (int64_t k = 0; k < size; ++k) dpeepholes[2 * size + k] += doutput[k] * cell[k];
    if (before == nullptr) continue;
    for (int64_t k = 0; k < size; ++k) dpeepholes[k] += dinput[k] * before[k];
    for (int64_t k = 0; k < size; ++k) dpeepholes[size + k] += dforget[k] * before[k];
  }
}

/// to[k] += sum over the rows of element k.
/// The gradient of a bias that add_to_rows() added.
template <typename T>
void add_columns(const T* from, int64_t rows, int64_t width, T* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* const row = from + r * width;
    for (int64_t k = 0; k < width; ++k) to[k] += row[k];
  }
}
/// Adds the vector to every row of `to`.
template <typename T>
void add_to_rows(const T* vector, int64_t rows, int64_t width, T* to) {
  for (int64_t r = 0; r < rows; ++r) {
    T* const row = to + r * width;
    for (int64_t k = 0; k < width; ++k) row[k] += vector[k];
  }
}

}  // namespace millrace::kernels::rnn
