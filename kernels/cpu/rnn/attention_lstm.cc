#include <algorithm>
#include <memory>

#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/rnn/kept_or_scratch.h"
#include "kernels/cpu/sequence/gate_activation.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// attention_lstm: in each time step, every row of the sequence is scored together with the cell
// state. The input of the time step is the mean of the rows, weighted by the softmax of the scores.
namespace millrace::kernels {
namespace rnn {
namespace attention_lstm_kernels {
namespace {

struct AttentionLstmSlots {
  ArgIndex x, c0, h0, weight, bias, scalar, scalar_bias, lstm_weight, lstm_bias, hidden, cell;
};

struct AttentionLstmTensors {
  const Tensor* x = nullptr;
  const Tensor* c0 = nullptr;
  const Tensor* h0 = nullptr;  ///< optional
  const Tensor* weight = nullptr;
  const Tensor* bias = nullptr;  ///< optional, like the next two
  const Tensor* scalar = nullptr;
  const Tensor* scalar_bias = nullptr;
  const Tensor* lstm_weight = nullptr;
  const Tensor* lstm_bias = nullptr;
  int64_t width = 0;
  int64_t size = 0;
};

struct AttentionLstmState {
  Activation gate = Activation::kSigmoid;
  Activation cell = Activation::kTanh;
  Activation candidate = Activation::kTanh;
  Workspace work;
  Gemm gemm;
};

StatusOr<AttentionLstmTensors> attention_lstm_tensors(const KernelContext& ctx,
                                                      const AttentionLstmSlots& slots) {
  AttentionLstmTensors t;
  t.x = &ctx.in(slots.x);
  t.c0 = &ctx.in(slots.c0);
  t.h0 = ctx.find_in(slots.h0);
  t.weight = &ctx.in(slots.weight);
  t.bias = ctx.find_in(slots.bias);
  t.scalar = ctx.find_in(slots.scalar);
  t.scalar_bias = ctx.find_in(slots.scalar_bias);
  t.lstm_weight = &ctx.in(slots.lstm_weight);
  t.lstm_bias = &ctx.in(slots.lstm_bias);
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(*t.x, "X"));
  if (t.x->rank() != 2 || t.c0->rank() != 2)
    return ctx.error("X and C0 must be matrices, found {} and {}", describe(*t.x), describe(*t.c0));
  t.width = t.x->dim(1);
  t.size = t.c0->dim(1);
  const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
  const auto fits = [&](const Tensor* tensor, int64_t count) {
    return fits_if_given(tensor, count, t.x->dtype());
  };
  if (!fits(t.c0, sequences * t.size) || !fits(t.h0, sequences * t.size))
    return ctx.error("C0 {} and H0 must have one row for each of the {} sequences", describe(*t.c0),
                     sequences);
  const int64_t both = t.width + t.size;
  if (!fits(t.weight, both) || !fits(t.lstm_weight, both * 4 * t.size) ||
      !fits(t.lstm_bias, 4 * t.size))
    return ctx.error("AttentionWeight {}, LSTMWeight {} and LSTMBias {} do not fit X {} and C0 {}",
                     describe(*t.weight), describe(*t.lstm_weight), describe(*t.lstm_bias),
                     describe(*t.x), describe(*t.c0));
  if (!fits(t.bias, 1) || !fits(t.scalar, 1) || !fits(t.scalar_bias, 1))
    return ctx.error(
        "AttentionBias, AttentionScalar and AttentionScalarBias must have one element each");
  return t;
}

// Buffers of one call.
template <typename T>
struct AttentionLstmScratch {
  T* of_rows;  ///< contribution of a row to its score, the same in all time steps
  T* shares;   ///< scores, then weights of the rows
  T* seen;     ///< the weighted mean
  T* gates;
  T* active;
};

enum class AttentionPiece : size_t { kOfRows, kShares, kSeen, kGates, kActive };

template <typename T>
StatusOr<AttentionLstmScratch<T>> attention_lstm_scratch(const AttentionLstmTensors& t,
                                                         Workspace& work) {
  const int64_t rows = t.x->dim(0);
  AttentionLstmScratch<T> s{};
  MILLRACE_ASSIGN_OR_RETURN(s.of_rows,
                            work.take<T>(static_cast<size_t>(AttentionPiece::kOfRows), rows));
  MILLRACE_ASSIGN_OR_RETURN(s.shares,
                            work.take<T>(static_cast<size_t>(AttentionPiece::kShares), rows));
  MILLRACE_ASSIGN_OR_RETURN(s.seen,
                            work.take<T>(static_cast<size_t>(AttentionPiece::kSeen), t.width));
  MILLRACE_ASSIGN_OR_RETURN(s.gates,
                            work.take<T>(static_cast<size_t>(AttentionPiece::kGates), 4 * t.size));
  MILLRACE_ASSIGN_OR_RETURN(s.active,
                            work.take<T>(static_cast<size_t>(AttentionPiece::kActive), t.size));
  return s;
}

template <typename T>
T element_or(const Tensor* tensor, T otherwise) {
  return tensor == nullptr ? otherwise : *tensor->data<T>();
}

// Weights of the rows [begin, begin + count), given the cell state before the time step.
template <typename T>
void weigh_rows_by_cells(const AttentionLstmTensors& t, const T* cells, const T* of_rows,
                         int64_t count, T* shares) {
  const T* const of_cells = t.weight->data<T>() + t.width;
  T common = element_or<T>(t.bias, T(0));
  for (int64_t k = 0; k < t.size; ++k) common += cells[k] * of_cells[k];
  for (int64_t r = 0; r < count; ++r) shares[r] = std::max(of_rows[r] + common, T(0));
  if (t.scalar != nullptr) {
    const T factor = *t.scalar->data<T>();
    const T summand = element_or<T>(t.scalar_bias, T(0));
    for (int64_t r = 0; r < count; ++r) shares[r] = std::max(shares[r] * factor + summand, T(0));
  }
  masked_softmax(shares, static_cast<const T*>(nullptr), /*mask_advances=*/false, count);
}

// Order of the gates: forget, input, output, candidate.
template <typename T>
void step(const AttentionLstmState& state, int64_t size, const T* before, T* gates, T* active,
          T* cell, T* hidden) {
  activate(state.gate, gates, 3 * size);
  activate(state.candidate, gates + 3 * size, size);
  for (int64_t k = 0; k < size; ++k)
    cell[k] = gates[k] * before[k] + gates[size + k] * gates[3 * size + k];
  std::copy_n(cell, size, active);
  activate(state.cell, active, size);
  for (int64_t k = 0; k < size; ++k) hidden[k] = gates[2 * size + k] * active[k];
}

template <typename T>
Status run(const KernelContext& ctx, const AttentionLstmTensors& t, const AttentionLstmSlots& slots,
           AttentionLstmState& state) {
  const llvm::ArrayRef<int64_t> offsets = t.x->lod().last();
  const int64_t size = t.size;
  const T* const x = t.x->data<T>();
  const T* const weight = t.lstm_weight->data<T>();
  T* const hidden = ctx.out(slots.hidden).data<T>();
  T* const cells = ctx.out(slots.cell).data<T>();
  MILLRACE_ASSIGN_OR_RETURN(const AttentionLstmScratch<T> s,
                            attention_lstm_scratch<T>(t, state.work));
  MILLRACE_RETURN_IF_ERROR(state.gemm(ctx.device(),
                                      {.rows = t.x->dim(0), .columns = 1, .inner = t.width}, x,
                                      t.weight->data<T>(), s.of_rows));
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const int64_t count = offsets[i + 1] - offsets[i];
    const auto sequence = static_cast<int64_t>(i);
    const T* before = t.c0->data<T>() + sequence * size;
    const T* fed = t.h0 == nullptr ? nullptr : t.h0->data<T>() + sequence * size;
    for (int64_t row = offsets[i]; row < offsets[i + 1]; ++row) {
      weigh_rows_by_cells(t, before, s.of_rows + offsets[i], count, s.shares);
      MILLRACE_RETURN_IF_ERROR(state.gemm(ctx.device(),
                                          {.rows = 1, .columns = t.width, .inner = count}, s.shares,
                                          x + offsets[i] * t.width, s.seen));
      std::copy_n(t.lstm_bias->data<T>(), 4 * size, s.gates);
      MILLRACE_RETURN_IF_ERROR(state.gemm(
          ctx.device(), {.rows = 1, .columns = 4 * size, .inner = t.width, .accumulate = true},
          s.seen, weight + size * 4 * size, s.gates));
      if (fed != nullptr) {
        MILLRACE_RETURN_IF_ERROR(state.gemm(
            ctx.device(), {.rows = 1, .columns = 4 * size, .inner = size, .accumulate = true}, fed,
            weight, s.gates));
      }
      step(state, size, before, s.gates, s.active, cells + row * size, hidden + row * size);
      before = cells + row * size;
      fed = hidden + row * size;
    }
  }
  return Ok();
}

StatusOr<Kernel> attention_lstm(const KernelSetup& op) {
  const AttentionLstmSlots slots{op.input("X"),
                                 op.input("C0"),
                                 op.input("H0"),
                                 op.input("AttentionWeight"),
                                 op.input("AttentionBias"),
                                 op.input("AttentionScalar"),
                                 op.input("AttentionScalarBias"),
                                 op.input("LSTMWeight"),
                                 op.input("LSTMBias"),
                                 op.output("Hidden"),
                                 op.output("Cell")};
  auto state = std::make_shared<AttentionLstmState>();
  state->gate = activation_of(op, "gate_activation");
  state->cell = activation_of(op, "cell_activation");
  state->candidate = activation_of(op, "candidate_activation");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const AttentionLstmTensors t, attention_lstm_tensors(ctx, slots));
    return dispatch<FloatTypes>(t.x->dtype(), [&](auto tag) {
      return run<typename decltype(tag)::type>(ctx, t, slots, *state);
    });
  });
}

}  // namespace
}  // namespace attention_lstm_kernels
}  // namespace rnn

void add_rnn_attention_lstm(KernelRegistry& registry) {
  registry.add("attention_lstm", rnn::attention_lstm_kernels::attention_lstm);
}

}  // namespace millrace::kernels
