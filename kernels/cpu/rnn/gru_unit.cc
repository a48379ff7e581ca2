#include <algorithm>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/rnn/gru_cell.h"
#include "kernels/cpu/rnn/lstm_cell.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// One time step of gru.
namespace millrace::kernels::rnn {

namespace gru_unit_kernels {
namespace {

struct UnitSlots {
  ArgIndex input;
  ArgIndex previous;
  ArgIndex weight;
  ArgIndex bias;
};

struct UnitTensors {
  const Tensor* input = nullptr;
  const Tensor* previous = nullptr;
  const Tensor* weight = nullptr;
  const Tensor* bias = nullptr;  // optional
  int64_t rows = 0;
  int64_t size = 0;
};

struct GruUnitState {
  Workspace work;
  Gemm gemm;
  GruFunctions functions;
};

UnitSlots unit_slots(const KernelSetup& op) {
  return {op.input("Input"), op.input("HiddenPrev"), op.input("Weight"), op.input("Bias")};
}

std::shared_ptr<GruUnitState> unit_state(const KernelSetup& op) {
  auto state = std::make_shared<GruUnitState>();
  state->functions.gate = static_cast<Activation>(op.attr<int32_t>("gate_activation"));
  state->functions.candidate = static_cast<Activation>(op.attr<int32_t>("activation"));
  state->functions.origin = op.attr<bool>("origin_mode");
  return state;
}

StatusOr<UnitTensors> unit_tensors(const KernelContext& ctx, const UnitSlots& slots) {
  UnitTensors t;
  MILLRACE_ASSIGN_OR_RETURN(t.input, needed(ctx, slots.input, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(t.previous, needed(ctx, slots.previous, "HiddenPrev"));
  MILLRACE_ASSIGN_OR_RETURN(t.weight, needed(ctx, slots.weight, "Weight"));
  t.bias = ctx.find_in(slots.bias);
  if (t.previous->rank() != 2)
    return ctx.error("HiddenPrev must be a matrix, found {}", describe(*t.previous));
  t.rows = t.previous->dim(0);
  t.size = t.previous->dim(1);
  const auto fits = [&](const Tensor* tensor, int64_t count) {
    return tensor == nullptr || (tensor->numel() == count && tensor->dtype() == t.input->dtype());
  };
  if (!fits(t.previous, t.rows * t.size) || !fits(t.input, t.rows * 3 * t.size) ||
      !fits(t.weight, 3 * t.size * t.size) || !fits(t.bias, 3 * t.size))
    return ctx.error("Input {}, Weight {} and Bias must have 3 columns per cell of HiddenPrev {}",
                     describe(*t.input), describe(*t.weight), describe(*t.previous));
  return t;
}

template <typename T>
StatusOr<T*> place_of(Tensor* output, Workspace& work, size_t piece, int64_t count) {
  if (output != nullptr && output->numel() == count) return output->data<T>();
  return work.take<T>(piece, count);
}

struct UnitGrads {
  const Tensor* gate = nullptr;
  const Tensor* reset = nullptr;
  const Tensor* dhidden = nullptr;
  Tensor* dinput = nullptr;
  Tensor* dprevious = nullptr;
  Tensor* dweight = nullptr;
  Tensor* dbias = nullptr;
};

template <typename T>
Status run_grad(const KernelContext& ctx, const UnitTensors& t, const UnitGrads& g,
                GruUnitState& state) {
  MILLRACE_ASSIGN_OR_RETURN(T* const dgates,
                            place_of<T>(g.dinput, state.work, 0, t.rows * 3 * t.size));
  MILLRACE_ASSIGN_OR_RETURN(T* const scratch, state.work.take<T>(1, t.rows * t.size));
  T* const dprevious = g.dprevious == nullptr ? nullptr : g.dprevious->data<T>();
  if (dprevious != nullptr) std::fill_n(dprevious, t.rows * t.size, T(0));
  MILLRACE_RETURN_IF_ERROR(gru_step_grad(
      ctx.device(), state.gemm, state.functions, t.rows, t.size, t.weight->data<T>(),
      g.gate->data<T>(), t.previous->data<T>(), g.dhidden->data<T>(), dgates, dprevious, scratch));
  if (g.dbias != nullptr) {
    std::fill_n(g.dbias->data<T>(), 3 * t.size, T(0));
    add_columns(dgates, t.rows, 3 * t.size, g.dbias->data<T>());
  }
  if (g.dweight == nullptr) return Ok();
  return gru_weights_grad(ctx.device(), state.gemm, t.rows, t.size, t.previous->data<T>(),
                          g.reset->data<T>(), static_cast<const T*>(dgates), g.dweight->data<T>());
}

StatusOr<Kernel> gru_unit(const KernelSetup& op) {
  const UnitSlots slots = unit_slots(op);
  const ArgIndex gate = op.output("Gate");
  const ArgIndex reset = op.output("ResetHiddenPrev");
  const ArgIndex hidden = op.output("Hidden");
  return Kernel([=, state = unit_state(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UnitTensors t, unit_tensors(ctx, slots));
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(
          T* const gates, place_of<T>(ctx.find_out(gate), state->work, 0, t.rows * 3 * t.size));
      MILLRACE_ASSIGN_OR_RETURN(T* const through,
                                place_of<T>(ctx.find_out(reset), state->work, 1, t.rows * t.size));
      std::copy_n(t.input->data<T>(), t.rows * 3 * t.size, gates);
      if (t.bias != nullptr) add_to_rows(t.bias->data<T>(), t.rows, 3 * t.size, gates);
      return gru_step(ctx.device(), state->gemm, state->functions, t.rows, t.size,
                      t.weight->data<T>(), gates, t.previous->data<T>(), through,
                      ctx.out(hidden).data<T>());
    });
  });
}

StatusOr<Kernel> gru_unit_grad(const KernelSetup& op) {
  const UnitSlots slots = unit_slots(op);
  const ArgIndex gate = op.input("Gate");
  const ArgIndex reset = op.input("ResetHiddenPrev");
  const ArgIndex dhidden = op.input("Hidden@GRAD");
  const ArgIndex dinput = op.output("Input@GRAD");
  const ArgIndex dprevious = op.output("HiddenPrev@GRAD");
  const ArgIndex dweight = op.output("Weight@GRAD");
  const ArgIndex dbias = op.output("Bias@GRAD");
  return Kernel([=, state = unit_state(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UnitTensors t, unit_tensors(ctx, slots));
    UnitGrads g;
    MILLRACE_ASSIGN_OR_RETURN(g.gate, needed(ctx, gate, "Gate"));
    MILLRACE_ASSIGN_OR_RETURN(g.reset, needed(ctx, reset, "ResetHiddenPrev"));
    MILLRACE_ASSIGN_OR_RETURN(g.dhidden, needed(ctx, dhidden, "Hidden@GRAD"));
    if (g.gate->numel() != t.rows * 3 * t.size || g.reset->numel() != t.rows * t.size ||
        g.dhidden->numel() != t.rows * t.size || g.gate->dtype() != t.input->dtype() ||
        g.reset->dtype() != t.input->dtype() || g.dhidden->dtype() != t.input->dtype())
      return ctx.error("Gate {}, ResetHiddenPrev and Hidden@GRAD {} must have the rows of Input {}",
                       describe(*g.gate), describe(*g.dhidden), describe(*t.input));
    MILLRACE_ASSIGN_OR_RETURN(g.dinput, result_like(ctx, dinput, *t.input));
    MILLRACE_ASSIGN_OR_RETURN(g.dprevious, result_like(ctx, dprevious, *t.previous));
    MILLRACE_ASSIGN_OR_RETURN(g.dweight, result_like(ctx, dweight, *t.weight));
    if (t.bias != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(g.dbias, result_like(ctx, dbias, *t.bias));
    }
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      return run_grad<typename decltype(tag)::type>(ctx, t, g, *state);
    });
  });
}

}  // namespace
}  // namespace gru_unit_kernels
}  // namespace millrace::kernels::rnn

namespace millrace::kernels {

void add_rnn_gru_unit(KernelRegistry& registry) {
  registry.add("gru_unit", rnn::gru_unit_kernels::gru_unit);
  registry.add("gru_unit_grad", rnn::gru_unit_kernels::gru_unit_grad);
}

}  // namespace millrace::kernels
