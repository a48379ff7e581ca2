#pragma once

#include <string>
#include <utility>

#include <llvm/ADT/SmallVector.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"

/// The op `rnn`: layers of one or two directions over a padded batch [length, batch, width].
/// Both directions of a layer read the same input; their states are concatenated, forward first,
/// and are the input of the next layer. Time runs along dim 0; rows that are shorter than the batch
/// are padded.
namespace millrace::kernels::rnn {

/// Kind of the cells, from attribute mode.
enum class Mode { kLstm, kGru, kTanh, kRelu };

/// Attributes of one op.
struct DenseSettings {
  Mode mode = Mode::kTanh;  ///< kind of the cells
  int64_t layers = 1;       ///< one above the other
  int64_t directions = 1;   ///< 2: each layer also runs from the end to the start
  int64_t size = 0;         ///< number of cells
  double dropout = 0;       ///< fraction of a layer's outputs that is dropped before the next layer
  uint64_t seed = 0;        ///< attribute seed, of the dropout

  /// Number of gates per cell.
  [[nodiscard]] int64_t gates() const {
    return mode == Mode::kLstm ? 4 : (mode == Mode::kGru ? 3 : 1);
  }
};
/// Settings and slots of the op rnn and of its gradient.
DenseSettings dense_settings(const KernelSetup& op);

/// One or two states: the hidden state and, for LSTM, the cell state.
using StateArgs = llvm::SmallVector<ArgIndex, 2>;

/// Arguments that the op and its gradient share.
struct DenseSlots {
  ArgIndex input;    ///< [length, batch, width]
  StateArgs states;  ///< before the first time step
  ArgRange weights;  ///< of layers and directions in order: input weights, state weights; then
                     ///< biases in the same order
  ArgIndex lengths;  ///< integers [batch], optional: time steps of each row
  ArgIndex flat;     ///< all weights in one var, in that order; replaces `weights`
};
DenseSlots dense_slots(const KernelSetup& op);
/// Settings and slots of cudnn_lstm.
DenseSettings cudnn_lstm_settings(const KernelSetup& op);
DenseSlots cudnn_lstm_slots(const KernelSetup& op);

/// Checked dims and inputs of one call.
struct DenseTensors {
  const Tensor* input = nullptr;     ///< [length, batch, width]
  int64_t length = 0;                ///< time steps of the batch
  int64_t batch = 0;                 ///< rows per time step
  int64_t width = 0;                 ///< numbers per row of the input
  const int64_t* lengths = nullptr;  ///< null: all rows have full length

  /// Rows of all time steps.
  [[nodiscard]] int64_t rows() const { return length * batch; }
  /// True if row b has no time step t.
  [[nodiscard]] bool is_over(int64_t b, int64_t t) const {
    return lengths != nullptr && t >= lengths[b];
  }
};
/// Rows and columns of weight k; a bias has one column.
/// \param input_width  width of Input
std::pair<int64_t, int64_t> weight_shape(const DenseSettings& s, int64_t input_width, int64_t k);
/// Offset of weight k, in elements, in a var that holds all weights.
int64_t weight_offset(const DenseSettings& s, int64_t input_width, int64_t k);

/// Uses scratch slot 0. Errors: kExecution for inputs that do not fit.
StatusOr<DenseTensors> dense_tensors(const KernelContext& ctx, const DenseSlots& slots,
                                     const DenseSettings& s);

/// Offsets, in elements, of the values that `Reserve` stores for the gradient. Each layer and
/// direction has gates, cells (for GRU: the contribution of the state to the candidate) and states
/// of all time steps. Each layer but the first has its inputs, and dropout factors if there is
/// dropout.
struct ReserveLayout {
  ReserveLayout(const DenseSettings& s, const DenseTensors& t);
  int64_t total = 0;         ///< elements of Reserve
  int64_t part = 0;          ///< size of one layer and direction
  int64_t gates = 0;         ///< elements of the gates of one part
  int64_t states = 0;        ///< elements of the states of one part
  int64_t inputs = 0;        ///< size for one layer
  bool has_factors = false;  ///< inputs are followed by dropout factors

  /// Offsets of the values of one layer and direction (DensePart::index).
  [[nodiscard]] int64_t gates_at(int64_t part_index) const { return part_index * part; }
  [[nodiscard]] int64_t cells_at(int64_t part_index) const { return gates_at(part_index) + gates; }
  [[nodiscard]] int64_t states_at(int64_t part_index) const {
    return cells_at(part_index) + states;
  }
  /// Inputs of a layer >= 1.
  [[nodiscard]] int64_t inputs_at(int64_t layer) const {
    return inputs_begin + (layer - 1) * inputs * (has_factors ? 2 : 1);
  }
  /// Dropout factors of the inputs of a layer >= 1.
  [[nodiscard]] int64_t factors_at(int64_t layer) const { return inputs_at(layer) + inputs; }
  int64_t inputs_begin = 0;
};

/// One layer and direction.
/// Weights have one row per gate and cell: [gates * size, width] and [gates * size, size].
template <typename T>
struct DensePart {
  int64_t index = 0;                 ///< layer * directions + direction
  bool backwards = false;            ///< runs from the last time step to the first
  int64_t width = 0;                 ///< width of its input
  const T* input_weights = nullptr;  ///< [gates * size, width]
  const T* state_weights = nullptr;  ///< [gates * size, size]
  const T* input_bias = nullptr;     ///< [gates * size]
  const T* state_bias = nullptr;     ///< [gates * size]
};
/// \param input_width  width of Input
/// Finds the weights of one layer and direction, wherever they are stored.
template <typename T>
DensePart<T> dense_part(const KernelContext& ctx, const DenseSlots& slots, const DenseSettings& s,
                        int64_t layer, int64_t direction, int64_t input_width) {
  DensePart<T> p;
  p.index = layer * s.directions + direction;
  p.backwards = direction == 1;
  p.width = layer == 0 ? input_width : s.directions * s.size;
  const int64_t parts = s.layers * s.directions;
  const auto weight = [&](int64_t k) -> const T* {
    if (slots.flat) return ctx.in(slots.flat).template data<T>() + weight_offset(s, input_width, k);
    return ctx.in(slots.weights, static_cast<int32_t>(k)).template data<T>();
  };
  p.input_weights = weight(2 * p.index);
  p.state_weights = weight(2 * p.index + 1);
  p.input_bias = weight(2 * (parts + p.index));
  p.state_bias = weight(2 * (parts + p.index) + 1);
  return p;
}

/// Inputs and outputs of the gradient op.
struct DenseGradSlots {
  ArgIndex reserve;   ///< values that the forward op stored (ReserveLayout)
  ArgIndex dout;      ///< gradient of the states of all time steps
  StateArgs dlast;    ///< gradients of the states after the last time step
  ArgIndex dinput;    ///< absent: not requested, like the following ones
  StateArgs dstates;  ///< gradients of the states before the first time step
  ArgRange dweights;  ///< in the order of DenseSlots::weights
  ArgIndex dflat;     ///< gradient of DenseSlots::flat
};

}  // namespace millrace::kernels::rnn
