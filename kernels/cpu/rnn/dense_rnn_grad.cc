#include <algorithm>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/rnn/dense_cells.h"
#include "kernels/cpu/rnn/dense_tensors.h"
#include "kernels/cpu/rnn/lstm_cell.h"
#include "kernels/registry.h"

namespace millrace::kernels::rnn {
namespace {

struct GradState {
  Workspace work;
  Gemm gemm;
};

enum DenseRnnGradPiece : size_t {
  kOut,
  kInput,
  kHidden,
  kCell,
  kGates,
  kFromState,
  kBefore,
  kNothing
};

// State of one call, which processes the layers from last to first.
template <typename T>
struct DenseRnnGradBackward {
  const KernelContext& ctx;
  const DenseSlots& slots;
  const DenseGradSlots& grads;
  const DenseSettings& s;
  const DenseTensors& t;
  const ReserveLayout& layout;
  const T* reserve;
  GradState& state;

  // for one layer and direction
  T* dhidden = nullptr;
  T* dcell = nullptr;
  T* dgates = nullptr;
  T* dfrom_state = nullptr;

  [[nodiscard]] const T* first_state(size_t which, const DensePart<T>& part) const {
    return ctx.in(slots.states[which]).template data<T>() + part.index * t.batch * s.size;
  }
  /// Hidden states, or cell states, before time step i in the order of the layer and direction.
  [[nodiscard]] const T* state_before(const DensePart<T>& part, int64_t i, bool cells) const;
  Status open_part(const DensePart<T>& part);
  void step(const DensePart<T>& part, int64_t i, const T* dout);
  Status steps(const DensePart<T>& part, const T* dout);
  Status weights(const DensePart<T>& part, const T* input);
  Status run_part(const DensePart<T>& part, const T* input, const T* dout, T* dinput, bool add);
  /// Out@GRAD; zeros if only the last states have a gradient.
  StatusOr<const T*> grad_of_out();
  Status run();
};

template <typename T>
StatusOr<const T*> DenseRnnGradBackward<T>::grad_of_out() {
  if (const Tensor* const given = ctx.find_in(grads.dout)) return given->data<T>();
  const int64_t count = t.rows() * s.directions * s.size;
  MILLRACE_ASSIGN_OR_RETURN(T* const zeros, state.work.take<T>(kNothing, count));
  std::fill_n(zeros, count, T(0));
  return zeros;
}

template <typename T>
const T* DenseRnnGradBackward<T>::state_before(const DensePart<T>& part, int64_t i,
                                               bool cells) const {
  if (i == 0) return first_state(cells ? 1 : 0, part);
  const int64_t time = part.backwards ? t.length - i : i - 1;
  const int64_t base = cells ? layout.cells_at(part.index) : layout.states_at(part.index);
  return reserve + base + time * t.batch * s.size;
}

template <typename T>
Status DenseRnnGradBackward<T>::open_part(const DensePart<T>& part) {
  const int64_t gates = s.gates() * s.size;
  MILLRACE_ASSIGN_OR_RETURN(dhidden, state.work.take<T>(kHidden, t.batch * s.size));
  MILLRACE_ASSIGN_OR_RETURN(dcell, state.work.take<T>(kCell, t.batch * s.size));
  MILLRACE_ASSIGN_OR_RETURN(dgates, state.work.take<T>(kGates, t.rows() * gates));
  dfrom_state = dgates;
  if (s.mode == Mode::kGru) {
    MILLRACE_ASSIGN_OR_RETURN(dfrom_state, state.work.take<T>(kFromState, t.rows() * gates));
  }
  const auto start = [&](size_t k, T* to) {
    const bool given =
        k < grads.dlast.size() && grads.dlast[k] && ctx.in_value(grads.dlast[k]).initialized();
    if (given) {
      std::copy_n(ctx.in(grads.dlast[k]).template data<T>() + part.index * t.batch * s.size,
                  t.batch * s.size, to);
    } else {
      std::fill_n(to, t.batch * s.size, T(0));
    }
  };
  start(0, dhidden);
  start(1, dcell);
  return Ok();
}

template <typename T>
void DenseRnnGradBackward<T>::step(const DensePart<T>& part, int64_t i, const T* dout) {
  const int64_t gates = s.gates() * s.size;
  const int64_t time = part.backwards ? t.length - 1 - i : i;
  const T* const before = state_before(part, i, /*cells=*/false);
  const T* const cell_before =
      s.mode == Mode::kLstm ? state_before(part, i, /*cells=*/true) : nullptr;
  for (int64_t b = 0; b < t.batch; ++b) {
    const int64_t row = time * t.batch + b;
    T* const to = dgates + row * gates;
    T* const to_state = dfrom_state + row * gates;
    if (t.is_over(b, time)) {
      std::fill_n(to, gates, T(0));
      std::fill_n(to_state, gates, T(0));
      continue;
    }
    const T* const given = dout + (row * s.directions + (part.backwards ? 1 : 0)) * s.size;
    T* const dh = dhidden + b * s.size;
    for (int64_t k = 0; k < s.size; ++k) dh[k] += given[k];
    cell_row_grad<T>(s.mode, s.size,
                     {reserve + layout.gates_at(part.index) + row * gates,
                      reserve + layout.cells_at(part.index) + row * s.size, before + b * s.size,
                      cell_before == nullptr ? nullptr : cell_before + b * s.size, dh,
                      dcell + b * s.size, to, to_state});
  }
}

template <typename T>
Status DenseRnnGradBackward<T>::steps(const DensePart<T>& part, const T* dout) {
  const int64_t gates = s.gates() * s.size;
  for (int64_t i = t.length - 1; i >= 0; --i) {
    step(part, i, dout);
    const int64_t time = part.backwards ? t.length - 1 - i : i;
    MILLRACE_RETURN_IF_ERROR(state.gemm(
        ctx.device(), {.rows = t.batch, .columns = s.size, .inner = gates, .accumulate = true},
        dfrom_state + time * t.batch * gates, part.state_weights, dhidden));
  }
  const auto store = [&](size_t k, const T* from) {
    if (k < grads.dstates.size() && grads.dstates[k])
      std::copy_n(from, t.batch * s.size,
                  ctx.out(grads.dstates[k]).template data<T>() + part.index * t.batch * s.size);
  };
  store(0, dhidden);
  if (s.mode == Mode::kLstm) store(1, dcell);
  return Ok();
}

template <typename T>
Status DenseRnnGradBackward<T>::weights(const DensePart<T>& part, const T* input) {
  const int64_t gates = s.gates() * s.size;
  const int64_t parts = s.layers * s.directions;
  const auto wanted = [&](int64_t k) -> T* {
    if (grads.dflat) return ctx.out(grads.dflat).template data<T>() + weight_offset(s, t.width, k);
    const auto at = static_cast<int32_t>(k);
    if (at >= grads.dweights.count || !ctx.has_out(grads.dweights, at)) return nullptr;
    return ctx.out(grads.dweights, at).template data<T>();
  };
  if (T* const to = wanted(2 * part.index)) {
    MILLRACE_RETURN_IF_ERROR(
        state.gemm(ctx.device(),
                   {.rows = gates, .columns = part.width, .inner = t.rows(), .a_transposed = true},
                   dgates, input, to));
  }
  if (T* const to = wanted(2 * part.index + 1)) {
    MILLRACE_ASSIGN_OR_RETURN(T* const before, state.work.take<T>(kBefore, t.rows() * s.size));
    for (int64_t i = 0; i < t.length; ++i) {
      const int64_t time = part.backwards ? t.length - 1 - i : i;
      std::copy_n(state_before(part, i, /*cells=*/false), t.batch * s.size,
                  before + time * t.batch * s.size);
    }
    MILLRACE_RETURN_IF_ERROR(state.gemm(
        ctx.device(), {.rows = gates, .columns = s.size, .inner = t.rows(), .a_transposed = true},
        dfrom_state, before, to));
  }
  if (T* const to = wanted(2 * (parts + part.index))) {
    std::fill_n(to, gates, T(0));
    add_columns(dgates, t.rows(), gates, to);
  }
  if (T* const to = wanted(2 * (parts + part.index) + 1)) {
    std::fill_n(to, gates, T(0));
    add_columns(dfrom_state, t.rows(), gates, to);
  }
  return Ok();
}

template <typename T>
Status DenseRnnGradBackward<T>::run_part(const DensePart<T>& part, const T* input, const T* dout,
                                         T* dinput, bool add) {
  MILLRACE_RETURN_IF_ERROR(open_part(part));
  MILLRACE_RETURN_IF_ERROR(steps(part, dout));
  MILLRACE_RETURN_IF_ERROR(weights(part, input));
  if (dinput == nullptr) return Ok();
  return state.gemm(
      ctx.device(),
      {.rows = t.rows(), .columns = part.width, .inner = s.gates() * s.size, .accumulate = add},
      dgates, part.input_weights, dinput);
}

template <typename T>
Status DenseRnnGradBackward<T>::run() {
  MILLRACE_ASSIGN_OR_RETURN(const T* dout, grad_of_out());
  for (int64_t layer = s.layers - 1; layer >= 0; --layer) {
    const T* const input = layer == 0 ? t.input->data<T>() : reserve + layout.inputs_at(layer);
    T* dinput = nullptr;
    if (layer > 0) {
      // two alternating buffers: one is read while the other is written
      MILLRACE_ASSIGN_OR_RETURN(dinput,
                                state.work.take<T>(layer % 2 == 0 ? kOut : kInput, layout.inputs));
    } else if (Tensor* const to = ctx.find_out(grads.dinput)) {
      dinput = to->data<T>();
    }
    for (int64_t d = 0; d < s.directions; ++d)
      MILLRACE_RETURN_IF_ERROR(
          run_part(dense_part<T>(ctx, slots, s, layer, d, t.width), input, dout, dinput, d > 0));
    if (layer > 0 && layout.has_factors) {
      const T* const factors = reserve + layout.factors_at(layer);
      for (int64_t i = 0; i < layout.inputs; ++i) dinput[i] *= factors[i];
    }
    dout = dinput;
  }
  return Ok();
}

Status check_grads(const KernelContext& ctx, const DenseGradSlots& grads, const DenseSettings& s,
                   const DenseTensors& t, const ReserveLayout& layout) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const reserve, needed(ctx, grads.reserve, "Reserve"));
  const Tensor* const dout = ctx.find_in(grads.dout);
  if (reserve->numel() != layout.total || reserve->dtype() != t.input->dtype())
    return ctx.error("Reserve must have {} elements, found {}", layout.total, describe(*reserve));
  if (dout != nullptr &&
      (dout->numel() != t.rows() * s.directions * s.size || dout->dtype() != t.input->dtype()))
    return ctx.error("Out@GRAD must be [{}, {}, {}], found {}", t.length, t.batch,
                     s.directions * s.size, describe(*dout));
  for (const ArgIndex arg : grads.dlast) {
    if (!arg || !ctx.in_value(arg).initialized()) continue;
    const Tensor& last = ctx.in(arg);
    if (last.numel() != s.layers * s.directions * t.batch * s.size ||
        last.dtype() != t.input->dtype())
      return ctx.error("gradients of the last states must match the first ones, found {}",
                       describe(last));
  }
  return Ok();
}

Kernel dense_grad_kernel(const DenseSettings& s, const DenseSlots& slots,
                         const DenseGradSlots& grads) {
  auto state = std::make_shared<GradState>();
  return [=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const DenseTensors t, dense_tensors(ctx, slots, s));
    const ReserveLayout layout(s, t);
    MILLRACE_RETURN_IF_ERROR(check_grads(ctx, grads, s, t, layout));
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return DenseRnnGradBackward<T>{
          ctx, slots, grads, s, t, layout, ctx.in(grads.reserve).data<T>(), *state}
          .run();
    });
  };
}

// Arguments 0 and 1 of a slot, including absent ones.
template <typename Find>
StateArgs state_args(Find&& find) {
  return {find(0), find(1)};
}

StatusOr<Kernel> dense_rnn_grad(const KernelSetup& op) {
  const DenseGradSlots grads{op.input("Reserve"),
                             op.input("Out@GRAD"),
                             state_args([&](size_t k) { return op.input("State@GRAD", k); }),
                             op.output("Input@GRAD"),
                             state_args([&](size_t k) { return op.output("PreState@GRAD", k); }),
                             op.outputs("WeightList@GRAD"),
                             {}};
  return dense_grad_kernel(dense_settings(op), dense_slots(op), grads);
}

StatusOr<Kernel> cudnn_lstm_grad(const KernelSetup& op) {
  const auto either = [&](const char* name, const char* old) {
    const ArgIndex arg = op.input(name);
    return arg ? arg : op.input(old);
  };
  const DenseGradSlots grads{
      op.input("Reserve"),
      op.input("Out@GRAD"),
      {either("LastH@GRAD", "last_h@GRAD"), either("LastC@GRAD", "last_c@GRAD")},
      op.output("Input@GRAD"),
      {op.output("InitH@GRAD"), op.output("InitC@GRAD")},
      op.outputs("WeightList@GRAD"),
      op.output("W@GRAD")};
  return dense_grad_kernel(cudnn_lstm_settings(op), cudnn_lstm_slots(op), grads);
}

}  // namespace
}  // namespace millrace::kernels::rnn

namespace millrace::kernels {

void add_rnn_dense_rnn_grad(KernelRegistry& registry) {
  registry.add("rnn_grad", rnn::dense_rnn_grad);
  registry.add("cudnn_lstm_grad", rnn::cudnn_lstm_grad);
}

}  // namespace millrace::kernels
