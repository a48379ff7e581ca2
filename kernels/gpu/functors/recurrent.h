#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/gpu/functors/walk.h"

// Functors of one time step of recurrent cells, f32. Call i computes one cell of one row; the
// products with the weights are done before. Formulas: kernels/cpu/rnn/lstm_cell.h, gru_cell.h.
namespace millrace::gpu {

/// Functions of gates, numbered as kernels::rnn::Activation. The clamped sigmoid has the slope of
/// the other one.
enum class GateFunction : int32_t { kIdentity, kSigmoid, kTanh, kRelu, kClampedSigmoid };

/// The function of a sum.
constexpr float gate_of(GateFunction function, float x) {
  if (function == GateFunction::kTanh) return std::tanh(x);
  if (function == GateFunction::kRelu) return x < 0.0F ? 0.0F : x;
  if (function == GateFunction::kIdentity) return x;
  if (function == GateFunction::kClampedSigmoid) {
    x = x < -40.0F ? -40.0F : x;
    x = x > 13.0F ? 13.0F : x;
  }
  return 1.0F / (1.0F + std::exp(-x));
}

/// The gradient of the sum, given the result y and its gradient.
constexpr float through_gate(GateFunction function, float y, float grad) {
  if (function == GateFunction::kTanh) return grad * (1.0F - y * y);
  if (function == GateFunction::kRelu) return y > 0.0F ? grad : 0.0F;
  return function == GateFunction::kIdentity ? grad : grad * (y * (1.0F - y));
}

/// An element of an optional vector or matrix; 0 if it is missing.
constexpr float value_or_zero(const float* values, int64_t at) {
  return values == nullptr ? 0.0F : values[at];
}

/// The cell of call i.
struct CellPlace {
  int64_t row;    ///< of the time step
  int64_t width;  ///< cells of a row
  int64_t k;      ///< number of the cell in its row
  constexpr CellPlace(int64_t i, const Divider& size)
      : row(size.quotient(static_cast<uint32_t>(i))), width(size.divisor), k(i - row * width) {}
  /// Position of gate 0 of the cell in rows of that many gates per cell.
  [[nodiscard]] constexpr int64_t gate(int64_t gates) const { return row * gates * width + k; }
};

/// The sums of a gate before its function: from the input, the bias and the previous state.
struct GateSums {
  const float* x;       ///< input, a row for each row of the LoD tensor
  const int64_t* rows;  ///< row of x for each row of the time step; null: the same
  const float* bias;    ///< one for each column of x; null: none
  /// Sum of column `column` of x, of `width` columns; `more` comes from the previous state.
  [[nodiscard]] constexpr float of(int64_t row, int64_t column, int64_t width, float more) const {
    const int64_t from = rows == nullptr ? row : rows[row];
    return x[from * width + column] + value_or_zero(bias, column) + more;
  }
};

/// Gates, cell state and hidden state of an LSTM cell. Order of the gates: candidate, input,
/// forget, output.
struct LstmCell {
  GateSums sums;           ///< width 4 * size
  const float* products;   ///< [rows, 4 * size], from the previous state; null: none
  const float* peepholes;  ///< [3 * size]: input, forget, output; null: none
  const float* previous;   ///< cell states before; null: zeros
  float* gates;            ///< [rows, 4 * size], results of the functions
  float* cells;            ///< [rows, size], like the following one
  float* hidden;           ///< fed back
  float* hidden_by_row;    ///< the same in the order of sums.x
  float* cells_by_row;     ///< the same of cells
  Divider size;            ///< cells of a row
  GateFunction gate;       ///< of input, forget and output
  GateFunction cell;       ///< of the cell state
  GateFunction candidate;  ///< of the candidate
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, size);
    const int64_t at = p.gate(4);
    const auto sum = [&](int64_t which) {
      return sums.of(p.row, which * p.width + p.k, 4 * p.width,
                     value_or_zero(products, at + which * p.width));
    };
    // no products with zeros: what is not finite would become NaN
    const auto seen = [&](int64_t which, const float* states, float state) {
      return peepholes == nullptr || states == nullptr ? 0.0F
                                                       : state * peepholes[which * p.width + p.k];
    };
    const float before = value_or_zero(previous, i);
    const float g = gate_of(candidate, sum(0));
    const float in = gate_of(gate, sum(1) + seen(0, previous, before));
    const float forget = gate_of(gate, sum(2) + seen(1, previous, before));
    const float c = previous == nullptr ? g * in : g * in + before * forget;
    const float out = gate_of(gate, sum(3) + seen(2, cells, c));
    gates[at] = g;
    gates[at + p.width] = in;
    gates[at + 2 * p.width] = forget;
    gates[at + 3 * p.width] = out;
    const float h = out * gate_of(cell, c);
    cells[i] = c;
    hidden[i] = h;
    const int64_t to = sums.rows[p.row] * p.width + p.k;
    cells_by_row[to] = c;
    hidden_by_row[to] = h;
  }
};

/// Gradient of LstmCell: of the sums, and of the previous cell state.
struct LstmCellGradient {
  const float* gates;      ///< [rows, 4 * size], as LstmCell left them
  const float* peepholes;  ///< [3 * size]; null: none
  const float* previous;   ///< [rows, size]: cell states before; null: zeros
  const float* cells;      ///< [rows, size]: cell states after
  const float* dhidden;    ///< [rows, size]
  float* dcells;           ///< [rows, size]: of the states after, then of those before
  float* dgates;           ///< [rows, 4 * size]: of the sums
  Divider size;            ///< cells of a row
  GateFunction gate;       ///< of input, forget and output
  GateFunction cell;       ///< of the cell state
  GateFunction candidate;  ///< of the candidate
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, size);
    const int64_t at = p.gate(4);
    const float g = gates[at];
    const float in = gates[at + p.width];
    const float forget = gates[at + 2 * p.width];
    const float out = gates[at + 3 * p.width];
    const float active = gate_of(cell, cells[i]);
    const float dout = through_gate(gate, out, dhidden[i] * active);
    float dc = dcells[i] + through_gate(cell, active, dhidden[i] * out);
    if (peepholes != nullptr) dc += dout * peepholes[2 * p.width + p.k];
    const float din = through_gate(gate, in, dc * g);
    const float dforget = through_gate(gate, forget, previous == nullptr ? 0.0F : dc * previous[i]);
    dgates[at] = through_gate(candidate, g, dc * in);
    dgates[at + p.width] = din;
    dgates[at + 2 * p.width] = dforget;
    dgates[at + 3 * p.width] = dout;
    float before = dc * forget;
    if (peepholes != nullptr) before += din * peepholes[p.k] + dforget * peepholes[p.width + p.k];
    dcells[i] = before;
  }
};

/// Update and reset gate of a GRU cell, and the previous state times the reset gate. Order of the
/// gates: update, reset, candidate; that of the candidate is left as a sum.
struct GruGates {
  GateSums sums;          ///< width 3 * size
  const float* products;  ///< [rows, 2 * size], from the previous state; null: none
  const float* previous;  ///< [rows, size]; null: zeros
  float* gates;           ///< [rows, 3 * size]
  float* reset;           ///< [rows, size]: previous state times reset gate
  Divider size;           ///< cells of a row
  GateFunction gate;      ///< of update and reset
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, size);
    const int64_t at = p.gate(3);
    const int64_t from = p.gate(2);
    const float update =
        gate_of(gate, sums.of(p.row, p.k, 3 * p.width, value_or_zero(products, from)));
    const float through = gate_of(
        gate, sums.of(p.row, p.width + p.k, 3 * p.width, value_or_zero(products, from + p.width)));
    gates[at] = update;
    gates[at + p.width] = through;
    gates[at + 2 * p.width] = sums.of(p.row, 2 * p.width + p.k, 3 * p.width, 0.0F);
    reset[i] = previous == nullptr ? 0.0F : through * previous[i];
  }
};

/// Candidate and new state of a GRU cell.
struct GruCell {
  const float* products;   ///< [rows, size], from `reset`; null: none
  const float* previous;   ///< [rows, size]; null: zeros
  const int64_t* rows;     ///< row of hidden_by_row for each row of the time step
  float* gates;            ///< as GruGates left them
  float* hidden;           ///< [rows, size]: new states
  float* hidden_by_row;    ///< the same in the order of the LoD tensor; null: not wanted
  Divider size;            ///< cells of a row
  GateFunction candidate;  ///< its function
  bool origin;             ///< the update gate weights the old state, not the new one
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, size);
    const int64_t at = p.gate(3);
    const float c = gate_of(candidate, gates[at + 2 * p.width] + value_or_zero(products, i));
    const float share = origin ? 1.0F - gates[at] : gates[at];
    const float before = value_or_zero(previous, i);
    gates[at + 2 * p.width] = c;
    const float h = before + share * (c - before);
    hidden[i] = h;
    if (hidden_by_row != nullptr) hidden_by_row[rows[p.row] * p.width + p.k] = h;
  }
};

/// Gradient of GruCell: of the sums of candidate and update gate, and a part of that of the
/// previous state.
struct GruCellGradient {
  const float* gates;      ///< [rows, 3 * size], as GruCell left them
  const float* previous;   ///< [rows, size]; null: zeros
  const float* dhidden;    ///< [rows, size]
  float* dcandidate;       ///< [rows, size]: of its sum
  float* dfirst;           ///< [rows, 2 * size]: of the sums of update and reset; sets the first
  float* dprevious;        ///< [rows, size]; is added to
  Divider size;            ///< cells of a row
  GateFunction gate;       ///< of update and reset
  GateFunction candidate;  ///< of the candidate
  bool origin;             ///< as in GruCell
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, size);
    const int64_t at = p.gate(3);
    const float update = gates[at];
    const float c = gates[at + 2 * p.width];
    const float share = origin ? 1.0F - update : update;
    const float dh = dhidden[i];
    const float slope = dh * (c - value_or_zero(previous, i));
    dfirst[p.gate(2)] = through_gate(gate, update, origin ? -slope : slope);
    dcandidate[i] = through_gate(candidate, c, dh * share);
    dprevious[i] += dh * (1.0F - share);
  }
};

/// Gradient of the reset gate, and another part of that of the previous state.
struct GruResetGradient {
  const float* gates;     ///< [rows, 3 * size], as GruCell left them
  const float* previous;  ///< [rows, size]; null: zeros
  const float* dreset;    ///< [rows, size]: gradient of GruGates::reset
  float* dfirst;          ///< [rows, 2 * size]; sets the second half of each row
  float* dprevious;       ///< [rows, size]; is added to
  Divider size;           ///< cells of a row
  GateFunction gate;      ///< of the reset gate
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, size);
    const float reset = gates[p.gate(3) + p.width];
    const float d = dreset[i];
    dfirst[p.gate(2) + p.width] = through_gate(gate, reset, d * value_or_zero(previous, i));
    dprevious[i] += d * reset;
  }
};

/// Element i of [rows, 3 * size], from the gradients of the two halves, in the order of the input.
struct GruInputGradient {
  const float* dfirst;      ///< [rows, 2 * size]: of update and reset
  const float* dcandidate;  ///< [rows, size]
  const int64_t* from;      ///< their row, for each row of the result; null: the same
  float* dinput;            ///< [rows, 3 * size]
  Divider width;            ///< 3 * size
  constexpr void operator()(int64_t i) const {
    const auto row = static_cast<int64_t>(width.quotient(static_cast<uint32_t>(i)));
    const int64_t column = i - row * width.divisor;
    const int64_t size = width.divisor / 3;
    const int64_t at = from == nullptr ? row : from[row];
    dinput[i] = column < 2 * size ? dfirst[at * 2 * size + column]
                                  : dcandidate[at * size + column - 2 * size];
  }
};

/// to[column] = sum over the rows of a[row, column] * b[row, column], in double.
struct ProductSums {
  const float* a;   ///< [rows, a_width]
  const float* b;   ///< [rows, b_width]
  float* to;        ///< one for each column
  int64_t rows;     ///< terms of each sum
  int64_t a_width;  ///< elements from one row of a to the next
  int64_t b_width;  ///< the same of b
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t column) const {
    double part = 0;
    for (int64_t row = team.rank(); row < rows; row += team.size())
      part += static_cast<double>(a[row * a_width + column]) *
              static_cast<double>(b[row * b_width + column]);
    const double sum = team.sum(part);
    if (team.rank() == 0) to[column] = static_cast<float>(sum);
  }
};

/// One time step of an LSTM whose sums are an input (lstm_unit). Order of the gates: input, forget,
/// output, candidate.
struct LstmUnit {
  const float* x;         ///< [rows, 4 * size]: sums
  const float* previous;  ///< [rows, size]: cell states before
  float* cells;           ///< [rows, size]
  float* hidden;          ///< [rows, size]
  Divider size;           ///< cells of a row
  float forget_bias;      ///< added to the sum of the forget gate
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, size);
    const float* const sums = x + p.gate(4);
    const int64_t width = p.width;
    const float in = gate_of(GateFunction::kSigmoid, sums[0]);
    const float forget = gate_of(GateFunction::kSigmoid, sums[width] + forget_bias);
    const float out = gate_of(GateFunction::kSigmoid, sums[2 * width]);
    const float c = forget * previous[i] + in * std::tanh(sums[3 * width]);
    cells[i] = c;
    hidden[i] = out * std::tanh(c);
  }
};

/// Its gradient.
struct LstmUnitGradient {
  LstmUnit unit;         ///< as it ran
  const float* dcells;   ///< [rows, size]; null: zeros
  const float* dhidden;  ///< [rows, size]; null: zeros
  float* dprevious;      ///< [rows, size]; null: not wanted
  float* dx;             ///< [rows, 4 * size]; null: not wanted
  constexpr void operator()(int64_t i) const {
    const CellPlace p(i, unit.size);
    const int64_t at = p.gate(4);
    const int64_t width = p.width;
    const float* const sums = unit.x + at;
    const float in = gate_of(GateFunction::kSigmoid, sums[0]);
    const float forget = gate_of(GateFunction::kSigmoid, sums[width] + unit.forget_bias);
    const float out = gate_of(GateFunction::kSigmoid, sums[2 * width]);
    const float candidate = std::tanh(sums[3 * width]);
    const float active = std::tanh(unit.cells[i]);
    const float dh = value_or_zero(dhidden, i);
    const float dc = value_or_zero(dcells, i) + dh * out * (1.0F - active * active);
    const float before = unit.previous[i];
    if (dprevious != nullptr) dprevious[i] = dc * forget;
    if (dx == nullptr) return;
    dx[at] = dc * candidate * in * (1.0F - in);
    dx[at + width] = dc * before * forget * (1.0F - forget);
    dx[at + 2 * width] = dh * active * out * (1.0F - out);
    dx[at + 3 * width] = dc * in * (1.0F - candidate * candidate);
  }
};

}  // namespace millrace::gpu
