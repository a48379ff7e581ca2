#include <algorithm>
#include <random>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/rnn/dense_cells.h"
#include "kernels/cpu/rnn/dense_tensors.h"
#include "kernels/cpu/rnn/lstm_cell.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace rnn {

DenseSettings dense_settings(const KernelSetup& op) {
  DenseSettings s;
  const auto mode = op.attr<std::string>("mode");
  s.mode = mode == "LSTM"       ? Mode::kLstm
           : mode == "GRU"      ? Mode::kGru
           : mode == "RNN_RELU" ? Mode::kRelu
                                : Mode::kTanh;
  s.layers = op.attr<int32_t>("num_layers");
  s.directions = op.attr<bool>("is_bidirec") ? 2 : 1;
  s.size = op.attr<int32_t>("hidden_size");
  if (!get_attr_or<bool>(op.op(), "is_test", false)) s.dropout = op.attr<float>("dropout_prob");
  if (s.layers == 1) s.dropout = 0;
  s.seed = static_cast<uint64_t>(op.attr<int32_t>("seed"));
  return s;
}

DenseSettings cudnn_lstm_settings(const KernelSetup& op) {
  DenseSettings s;
  s.mode = Mode::kLstm;
  s.layers = op.attr<int32_t>("num_layers");
  s.directions = op.attr<bool>("is_bidirec") ? 2 : 1;
  s.size = op.attr<int32_t>("hidden_size");
  if (!op.attr<bool>("is_test") && s.layers > 1) s.dropout = op.attr<float>("dropout_prob");
  // in programs of 1.x an attribute says whether the seed is used
  if (get_attr_or<bool>(op.op(), "fix_seed", true))
    s.seed = static_cast<uint64_t>(op.attr<int32_t>("seed"));
  return s;
}

DenseSlots dense_slots(const KernelSetup& op) {
  DenseSlots slots{op.input("Input"), {}, op.inputs("WeightList"), op.input("SequenceLength"), {}};
  for (int32_t k = 0; k < op.inputs("PreState").count; ++k)
    slots.states.push_back(op.input("PreState", static_cast<size_t>(k)));
  return slots;
}

DenseSlots cudnn_lstm_slots(const KernelSetup& op) {
  return {op.input("Input"),
          {op.input("InitH"), op.input("InitC")},
          op.inputs("WeightList"),
          op.input("SequenceLength"),
          op.input("W")};
}

std::pair<int64_t, int64_t> weight_shape(const DenseSettings& s, int64_t input_width, int64_t k) {
  const int64_t rows = s.gates() * s.size;
  if (k >= 2 * s.layers * s.directions) return {rows, 1};
  if (k % 2 == 1) return {rows, s.size};
  return {rows, k / 2 < s.directions ? input_width : s.directions * s.size};
}

int64_t weight_offset(const DenseSettings& s, int64_t input_width, int64_t k) {
  int64_t offset = 0;
  for (int64_t i = 0; i < k; ++i) {
    const auto [rows, columns] = weight_shape(s, input_width, i);
    offset += rows * columns;
  }
  return offset;
}

namespace {

Status check_weights(const KernelContext& ctx, const DenseSlots& slots, const DenseSettings& s,
                     const DenseTensors& t) {
  const int64_t parts = s.layers * s.directions;
  if (slots.flat) {
    const Tensor& weights = ctx.in(slots.flat);
    const int64_t count = weight_offset(s, t.width, 4 * parts);
    if (weights.numel() == count && weights.dtype() == t.input->dtype()) return Ok();
    return ctx.error("W must have {} elements of the type of Input, found {}", count,
                     describe(weights));
  }
  if (slots.weights.count != 4 * parts)
    return ctx.error("WeightList must have {} vars, found {}", 4 * parts, slots.weights.count);
  for (int64_t k = 0; k < 4 * parts; ++k) {
    const Tensor& weight = ctx.in(slots.weights, static_cast<int32_t>(k));
    const auto [height, width] = weight_shape(s, t.width, k);
    const int64_t dims[] = {height, width};
    const bool is_bias = k >= 2 * parts;
    if (weight.dims() != llvm::ArrayRef<int64_t>(dims).take_front(is_bias ? 1 : 2) ||
        weight.dtype() != t.input->dtype())
      return ctx.error("WeightList[{}] must have {} rows and {} columns, found {}", k, height,
                       width, describe(weight));
  }
  return Ok();
}

}  // namespace

StatusOr<DenseTensors> dense_tensors(const KernelContext& ctx, const DenseSlots& slots,
                                     const DenseSettings& s) {
  DenseTensors t;
  MILLRACE_ASSIGN_OR_RETURN(t.input, needed(ctx, slots.input, "Input"));
  if (t.input->rank() != 3)
    return ctx.error("Input must be [length, batch, width], found {}", describe(*t.input));
  t.length = t.input->dim(0);
  t.batch = t.input->dim(1);
  t.width = t.input->dim(2);
  const size_t states = s.mode == Mode::kLstm ? 2 : 1;
  if (slots.states.size() != states)
    return ctx.error("PreState must have {} vars, found {}", states, slots.states.size());
  for (size_t k = 0; k < states; ++k) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given,
                              needed(ctx, slots.states[k], k == 0 ? "states" : "cell states"));
    const Tensor& state = *given;
    if (state.numel() != s.layers * s.directions * t.batch * s.size ||
        state.dtype() != t.input->dtype())
      return ctx.error("{} before the first step must be [{}, {}, {}], found {}",
                       k == 0 ? "states" : "cell states", s.layers * s.directions, t.batch, s.size,
                       describe(state));
  }
  MILLRACE_RETURN_IF_ERROR(check_weights(ctx, slots, s, t));
  const Tensor* const lengths = ctx.find_in(slots.lengths);
  if (lengths == nullptr) return t;
  if (lengths->numel() != t.batch)
    return ctx.error("SequenceLength must have {} elements, found {}", t.batch, describe(*lengths));
  MILLRACE_ASSIGN_OR_RETURN(t.lengths, integers_of(ctx, *lengths, 0));
  return t;
}

ReserveLayout::ReserveLayout(const DenseSettings& s, const DenseTensors& t)
    : gates(t.rows() * s.gates() * s.size),
      states(t.rows() * s.size),
      inputs(t.rows() * s.directions * s.size),
      has_factors(s.dropout > 0) {
  part = gates + 2 * states;
  inputs_begin = s.layers * s.directions * part;
  total = inputs_begin + (s.layers - 1) * inputs * (has_factors ? 2 : 1);
}

namespace {

struct DenseState {
  Workspace work;
  Gemm gemm;
  std::mt19937_64 engine;
};

// State of one call.
template <typename T>
struct DenseRnnForward {
  const KernelContext& ctx;
  const DenseSlots& slots;
  const DenseSettings& s;
  const DenseTensors& t;
  DenseState& state;
  T* reserve;
  const ReserveLayout& layout;
  T* out;  // [length, batch, directions * size]
  const StateArgs& last_states;

  Status run_part(const DensePart<T>& part, const T* input, T* to);
  void step(const DensePart<T>& part, int64_t time, const T* before, const T* cell_before,
            const T* from_state, T* to);
  void drop_out(int64_t layer);
  Status run();
};

template <typename T>
void DenseRnnForward<T>::step(const DensePart<T>& part, int64_t time, const T* before,
                              const T* cell_before, const T* from_state, T* to) {
  const int64_t gates = s.gates() * s.size;
  const bool has_cell = s.mode == Mode::kLstm;
  for (int64_t b = 0; b < t.batch; ++b) {
    const int64_t row = time * t.batch + b;
    T* const hidden = reserve + layout.states_at(part.index) + row * s.size;
    T* const cell = reserve + layout.cells_at(part.index) + row * s.size;
    T* const yields = to + (row * s.directions + (part.backwards ? 1 : 0)) * s.size;
    if (t.is_over(b, time)) {
      std::copy_n(before + b * s.size, s.size, hidden);
      if (has_cell) std::copy_n(cell_before + b * s.size, s.size, cell);
      std::fill_n(yields, s.size, T(0));
      continue;
    }
    cell_row<T>(s.mode, s.size,
                {reserve + layout.gates_at(part.index) + row * gates, from_state + b * gates,
                 before + b * s.size, has_cell ? cell_before + b * s.size : nullptr, cell, hidden});
    std::copy_n(hidden, s.size, yields);
  }
}

template <typename T>
Status DenseRnnForward<T>::run_part(const DensePart<T>& part, const T* input, T* to) {
  const int64_t gates = s.gates() * s.size;
  T* const sums = reserve + layout.gates_at(part.index);
  MILLRACE_RETURN_IF_ERROR(state.gemm(
      ctx.device(), {.rows = t.rows(), .columns = gates, .inner = part.width, .b_transposed = true},
      input, part.input_weights, sums));
  add_to_rows(part.input_bias, t.rows(), gates, sums);
  MILLRACE_ASSIGN_OR_RETURN(T* const from_state, state.work.take<T>(0, t.batch * gates));
  const int64_t first = part.index * t.batch * s.size;
  const T* before = ctx.in(slots.states[0]).data<T>() + first;
  const T* cell_before =
      s.mode == Mode::kLstm ? ctx.in(slots.states[1]).data<T>() + first : nullptr;
  for (int64_t i = 0; i < t.length; ++i) {
    const int64_t time = part.backwards ? t.length - 1 - i : i;
    MILLRACE_RETURN_IF_ERROR(state.gemm(
        ctx.device(), {.rows = t.batch, .columns = gates, .inner = s.size, .b_transposed = true},
        before, part.state_weights, from_state));
    add_to_rows(part.state_bias, t.batch, gates, from_state);
    step(part, time, before, cell_before, from_state, to);
    const int64_t at = time * t.batch * s.size;
    before = reserve + layout.states_at(part.index) + at;
    if (cell_before != nullptr) cell_before = reserve + layout.cells_at(part.index) + at;
  }
  const auto keep = [&](size_t k, const T* from) {
    if (k < last_states.size() && last_states[k])
      std::copy_n(from, t.batch * s.size, ctx.out(last_states[k]).data<T>() + first);
  };
  keep(0, before);
  if (cell_before != nullptr) keep(1, cell_before);
  return Ok();
}

template <typename T>
void DenseRnnForward<T>::drop_out(int64_t layer) {
  if (!layout.has_factors) return;
  T* const x = reserve + layout.inputs_at(layer);
  T* const factors = reserve + layout.factors_at(layer);
  std::bernoulli_distribution kept(1 - s.dropout);
  const T scale = s.dropout < 1 ? static_cast<T>(1 / (1 - s.dropout)) : T(0);
  for (int64_t i = 0; i < layout.inputs; ++i) {
    factors[i] = kept(state.engine) ? scale : T(0);
    x[i] *= factors[i];
  }
}

template <typename T>
Status DenseRnnForward<T>::run() {
  const T* input = t.input->data<T>();
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const bool last = layer + 1 == s.layers;
    T* const to = last ? out : reserve + layout.inputs_at(layer + 1);
    for (int64_t d = 0; d < s.directions; ++d)
      MILLRACE_RETURN_IF_ERROR(
          run_part(dense_part<T>(ctx, slots, s, layer, d, t.width), input, to));
    if (!last) drop_out(layer + 1);
    input = to;
  }
  return Ok();
}

// Memory of Reserve; a workspace buffer if the program has no gradient.
template <typename T>
StatusOr<T*> reserve_of(Tensor* reserve, Workspace& work, int64_t count) {
  if (reserve == nullptr) return work.take<T>(1, count);
  MILLRACE_RETURN_IF_ERROR(reserve->resize(kDTypeOf<T>, {count}));
  return reserve->data<T>();
}

struct DenseOutputs {
  ArgIndex out;
  StateArgs states;
  ArgIndex reserve;
  ArgIndex dropout_state;  // the original stores its random generator here; empty in millrace
};

Kernel dense_kernel(const DenseSettings& s, const DenseSlots& slots, const DenseOutputs& outputs) {
  auto state = std::make_shared<DenseState>();
  return [=](const KernelContext& ctx) -> Status {
    // the numbers must differ in every run even if the op has a seed; next_seed() ensures that
    if (s.dropout > 0) {
      const uint64_t run = ctx.device().next_seed();
      state->engine.seed(s.seed != 0 ? random_bits(static_cast<uint64_t>(s.seed), run) : run);
    }
    MILLRACE_ASSIGN_OR_RETURN(const DenseTensors t, dense_tensors(ctx, slots, s));
    if (Tensor* const unused = ctx.find_out(outputs.dropout_state))
      MILLRACE_RETURN_IF_ERROR(unused->resize(DType::kUint8, {0}));
    const ReserveLayout layout(s, t);
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(
          T* const place, reserve_of<T>(ctx.find_out(outputs.reserve), state->work, layout.total));
      return DenseRnnForward<T>{
          ctx, slots, s, t, *state, place, layout, ctx.out(outputs.out).data<T>(), outputs.states}
          .run();
    });
  };
}

StatusOr<Kernel> dense_rnn(const KernelSetup& op) {
  DenseOutputs outputs{op.output("Out"), {}, op.output("Reserve"), op.output("DropoutState")};
  for (int32_t k = 0; k < op.outputs("State").count; ++k)
    outputs.states.push_back(op.output("State", static_cast<size_t>(k)));
  return dense_kernel(dense_settings(op), dense_slots(op), outputs);
}

// Programs of 1.x use lower-case names for the last states.
StatusOr<Kernel> cudnn_lstm(const KernelSetup& op) {
  const auto either = [&](const char* name, const char* old) {
    const ArgIndex arg = op.output(name);
    return arg ? arg : op.output(old);
  };
  const DenseOutputs outputs{op.output("Out"),
                             {either("LastH", "last_h"), either("LastC", "last_c")},
                             op.output("Reserve"),
                             op.output("StateOut")};
  return dense_kernel(cudnn_lstm_settings(op), cudnn_lstm_slots(op), outputs);
}

}  // namespace
}  // namespace rnn

void add_rnn_dense_rnn(KernelRegistry& registry) {
  registry.add("rnn", rnn::dense_rnn);
  registry.add("cudnn_lstm", rnn::cudnn_lstm);
}

}  // namespace millrace::kernels
