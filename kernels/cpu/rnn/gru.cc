#include <algorithm>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/rnn/common_gradients.h"
#include "kernels/cpu/rnn/gru_tensors.h"
#include "kernels/cpu/rnn/kept_or_scratch.h"
#include "kernels/cpu/rnn/lstm_cell.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// gru over LoD sequences.
namespace millrace::kernels {
namespace rnn {

std::shared_ptr<GruState> gru_state(const KernelSetup& op) {
  auto state = std::make_shared<GruState>();
  state->functions.gate = activation_of(op, "gate_activation");
  state->functions.candidate = activation_of(op, "activation");
  state->functions.origin = op.attr<bool>("origin_mode");
  state->reverse = op.attr<bool>("is_reverse");
  return state;
}

Status measure_gru(GruTensors& t) {
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(*t.input, "Input"));
  if (t.weight->rank() != 2)
    return KernelContext::error("Weight must be a matrix, found {}", describe(*t.weight));
  t.rows = t.input->dim(0);
  t.size = t.weight->dim(0);
  const auto fits = [&](const Tensor* tensor, int64_t count) {
    return tensor == nullptr || (tensor->numel() == count && tensor->dtype() == t.input->dtype());
  };
  const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
  if (!fits(t.input, t.rows * 3 * t.size) || !fits(t.weight, 3 * t.size * t.size) ||
      !fits(t.bias, 3 * t.size) || !fits(t.h0, sequences * t.size))
    return KernelContext::error(
        "Input {} and Bias must have 3 columns per cell as Weight {}, H0 one row for each of the "
        "{} "
        "sequences",
        describe(*t.input), describe(*t.weight), sequences);
  return Ok();
}

namespace gru_kernels {
namespace {

struct GruSlots {
  ArgIndex input;
  ArgIndex weight;
  ArgIndex bias;
  ArgIndex h0;
};

GruSlots gru_slots(const KernelSetup& op) {
  return {op.input("Input"), op.input("Weight"), op.input("Bias"), op.input("H0")};
}

StatusOr<GruTensors> gru_tensors(const KernelContext& ctx, const GruSlots& slots) {
  GruTensors t;
  MILLRACE_ASSIGN_OR_RETURN(t.input, needed(ctx, slots.input, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(t.weight, needed(ctx, slots.weight, "Weight"));
  t.bias = ctx.find_in(slots.bias);
  t.h0 = ctx.find_in(slots.h0);
  MILLRACE_RETURN_IF_ERROR(measure_gru(t));
  return t;
}

enum GruPiece : size_t {
  kGruGates,
  kGruReset,
  kGruHidden,
  kGruH0,
  kGruHiddenGrad,
  kGruGateGrad,
  kGruScratch,
  kGruBefore
};

template <typename T>
StatusOr<const T*> first_states(const GruTensors& t, GruState& state) {
  if (t.h0 == nullptr) return static_cast<const T*>(nullptr);
  MILLRACE_ASSIGN_OR_RETURN(T* const h0,
                            state.work.take<T>(kGruH0, state.order.sequences() * t.size));
  state.order.gather_sequences(t.h0->data<T>(), t.size, h0);
  return static_cast<const T*>(h0);
}

}  // namespace
}  // namespace gru_kernels

template <typename T>
Status run_gru(const KernelContext& ctx, const GruTensors& t, const GruOutputs& out,
               GruState& state) {
  using namespace gru_kernels;
  const StepOrder& order = state.order;
  MILLRACE_ASSIGN_OR_RETURN(
      T* const gates, kept_or_scratch<T>(out.gates, state.work, kGruGates, t.rows * 3 * t.size));
  MILLRACE_ASSIGN_OR_RETURN(T* const reset,
                            kept_or_scratch<T>(out.reset, state.work, kGruReset, t.rows * t.size));
  MILLRACE_ASSIGN_OR_RETURN(T* const hidden, kept_or_scratch<T>(out.ordered_hidden, state.work,
                                                                kGruHidden, t.rows * t.size));
  MILLRACE_ASSIGN_OR_RETURN(const T* const h0, first_states<T>(t, state));
  order.gather(t.input->data<T>(), 3 * t.size, gates);
  if (t.bias != nullptr) add_to_rows(t.bias->data<T>(), t.rows, 3 * t.size, gates);
  for (int64_t step = 0; step < order.steps(); ++step) {
    const int64_t begin = order.start(step);
    const T* const previous =
        step == 0 ? h0 : static_cast<const T*>(hidden + order.start(step - 1) * t.size);
    MILLRACE_RETURN_IF_ERROR(gru_step(ctx.device(), state.gemm, state.functions, order.count(step),
                                      t.size, t.weight->data<T>(), gates + begin * 3 * t.size,
                                      previous, reset + begin * t.size, hidden + begin * t.size));
  }
  order.scatter(hidden, t.size, out.hidden->data<T>());
  return Ok();
}

template Status run_gru<float>(const KernelContext&, const GruTensors&, const GruOutputs&,
                               GruState&);
template Status run_gru<double>(const KernelContext&, const GruTensors&, const GruOutputs&,
                                GruState&);

namespace gru_kernels {
namespace {

StatusOr<Kernel> gru(const KernelSetup& op) {
  const GruSlots slots = gru_slots(op);
  const ArgIndex hidden = op.output("Hidden");
  const ArgIndex gates = op.output("BatchGate");
  const ArgIndex reset = op.output("BatchResetHiddenPrev");
  const ArgIndex ordered = op.output("BatchHidden");
  return Kernel([=, state = gru_state(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GruTensors t, gru_tensors(ctx, slots));
    state->order.build(t.input->lod().last(), state->reverse);
    const GruOutputs out{&ctx.out(hidden), ctx.find_out(gates), ctx.find_out(reset),
                         ctx.find_out(ordered)};
    for (Tensor* const with_lod : {out.gates, out.ordered_hidden}) {
      if (with_lod != nullptr) with_lod->set_lod(state->order.as_lod());
    }
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      return run_gru<typename decltype(tag)::type>(ctx, t, out, *state);
    });
  });
}

struct GruGradSlots {
  ArgIndex gates;
  ArgIndex reset;
  ArgIndex hidden;
  ArgIndex dhidden;
  ArgIndex dinput;
  ArgIndex dweight;
  ArgIndex dbias;
  ArgIndex dh0;
};

struct GruGradTensors {
  const Tensor* gates = nullptr;
  const Tensor* reset = nullptr;
  const Tensor* hidden = nullptr;
  const Tensor* dhidden = nullptr;
  Tensor* dinput = nullptr;
  Tensor* dweight = nullptr;
  Tensor* dbias = nullptr;
  Tensor* dh0 = nullptr;
};

StatusOr<GruGradTensors> grad_tensors(const KernelContext& ctx, const GruGradSlots& slots,
                                      const GruTensors& t) {
  GruGradTensors g;
  MILLRACE_ASSIGN_OR_RETURN(g.gates, needed(ctx, slots.gates, "BatchGate"));
  MILLRACE_ASSIGN_OR_RETURN(g.reset, needed(ctx, slots.reset, "BatchResetHiddenPrev"));
  MILLRACE_ASSIGN_OR_RETURN(g.hidden, needed(ctx, slots.hidden, "BatchHidden"));
  MILLRACE_ASSIGN_OR_RETURN(g.dhidden, needed(ctx, slots.dhidden, "Hidden@GRAD"));
  for (const Tensor* const other : {g.gates, g.reset, g.hidden, g.dhidden}) {
    const int64_t width = other == g.gates ? 3 * t.size : t.size;
    if (other->numel() != t.rows * width || other->dtype() != t.input->dtype())
      return ctx.error("outputs of the forward op must have the {} rows of Input, found {}", t.rows,
                       describe(*other));
  }
  MILLRACE_RETURN_IF_ERROR(size_common_gradients(ctx, slots, t, g));
  return g;
}

template <typename T>
Status weights_grad(const KernelContext& ctx, const GruTensors& t, const GruGradTensors& g,
                    const T* h0, const T* dgates, GruState& state) {
  const StepOrder& order = state.order;
  MILLRACE_ASSIGN_OR_RETURN(T* const before, state.work.take<T>(kGruBefore, t.rows * t.size));
  const int64_t first = order.steps() == 0 ? 0 : order.count(0);
  if (h0 != nullptr) {
    std::copy_n(h0, first * t.size, before);
  } else {
    std::fill_n(before, first * t.size, T(0));
  }
  for (int64_t step = 1; step < order.steps(); ++step)
    std::copy_n(g.hidden->data<T>() + order.start(step - 1) * t.size, order.count(step) * t.size,
                before + order.start(step) * t.size);
  return gru_weights_grad(ctx.device(), state.gemm, t.rows, t.size, static_cast<const T*>(before),
                          g.reset->data<T>(), dgates, g.dweight->data<T>());
}

template <typename T>
Status run_gru_grad(const KernelContext& ctx, const GruTensors& t, const GruGradTensors& g,
                    GruState& state) {
  const StepOrder& order = state.order;
  const int64_t size = t.size;
  MILLRACE_ASSIGN_OR_RETURN(T* const dhidden, state.work.take<T>(kGruHiddenGrad, t.rows * size));
  MILLRACE_ASSIGN_OR_RETURN(T* const dgates, state.work.take<T>(kGruGateGrad, t.rows * 3 * size));
  MILLRACE_ASSIGN_OR_RETURN(T* const scratch,
                            state.work.take<T>(kGruScratch, order.sequences() * size));
  MILLRACE_ASSIGN_OR_RETURN(T* const dfirst,
                            state.work.take<T>(kGruReset, order.sequences() * size));
  MILLRACE_ASSIGN_OR_RETURN(const T* const h0, first_states<T>(t, state));
  std::fill_n(dfirst, order.sequences() * size, T(0));
  order.gather(g.dhidden->data<T>(), size, dhidden);
  for (int64_t step = order.steps() - 1; step >= 0; --step) {
    const int64_t begin = order.start(step);
    const int64_t before = step == 0 ? 0 : order.start(step - 1);
    MILLRACE_RETURN_IF_ERROR(gru_step_grad(
        ctx.device(), state.gemm, state.functions, order.count(step), size, t.weight->data<T>(),
        g.gates->data<T>() + begin * 3 * size, step == 0 ? h0 : g.hidden->data<T>() + before * size,
        dhidden + begin * size, dgates + begin * 3 * size,
        step == 0 ? dfirst : dhidden + before * size, scratch));
  }
  if (g.dweight != nullptr) MILLRACE_RETURN_IF_ERROR(weights_grad<T>(ctx, t, g, h0, dgates, state));
  if (g.dbias != nullptr) {
    std::fill_n(g.dbias->data<T>(), 3 * size, T(0));
    add_columns(dgates, t.rows, 3 * size, g.dbias->data<T>());
  }
  if (g.dinput != nullptr) order.scatter(dgates, 3 * size, g.dinput->data<T>());
  if (g.dh0 != nullptr) order.scatter_sequences(dfirst, size, g.dh0->data<T>());
  return Ok();
}

StatusOr<Kernel> gru_grad(const KernelSetup& op) {
  const GruSlots slots = gru_slots(op);
  const GruGradSlots grads{op.input("BatchGate"),   op.input("BatchResetHiddenPrev"),
                           op.input("BatchHidden"), op.input("Hidden@GRAD"),
                           op.output("Input@GRAD"), op.output("Weight@GRAD"),
                           op.output("Bias@GRAD"),  op.output("H0@GRAD")};
  return Kernel([=, state = gru_state(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GruTensors t, gru_tensors(ctx, slots));
    MILLRACE_ASSIGN_OR_RETURN(const GruGradTensors g, grad_tensors(ctx, grads, t));
    state->order.build(t.input->lod().last(), state->reverse);
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      return run_gru_grad<typename decltype(tag)::type>(ctx, t, g, *state);
    });
  });
}

}  // namespace
}  // namespace gru_kernels

}  // namespace rnn

void add_rnn_gru(KernelRegistry& registry) {
  registry.add("gru", rnn::gru_kernels::gru);
  registry.add("gru_grad", rnn::gru_kernels::gru_grad);
}

}  // namespace millrace::kernels
