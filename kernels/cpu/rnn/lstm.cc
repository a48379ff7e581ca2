#include <algorithm>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/rnn/kept_or_scratch.h"
#include "kernels/cpu/rnn/lstm_tensors.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace rnn {

LstmSettings lstm_settings(const KernelSetup& op, bool projected) {
  LstmSettings s;
  s.functions.gate = activation_of(op, "gate_activation");
  s.functions.cell = activation_of(op, "cell_activation");
  s.functions.candidate = activation_of(op, "candidate_activation");
  s.peepholes = op.attr<bool>("use_peepholes");
  s.reverse = op.attr<bool>("is_reverse");
  if (projected) {
    s.functions.cell_clip = op.attr<float>("cell_clip");
    s.projection = activation_of(op, "proj_activation");
    // the original uses a separate function for the projection, which does not clamp
    if (s.projection == Activation::kClampedSigmoid) s.projection = Activation::kSigmoid;
    s.projection_clip = op.attr<float>("proj_clip");
  }
  return s;
}

LstmSlots lstm_slots(const KernelSetup& op) {
  return {op.input("Input"),      op.input("Weight"), op.input("Bias"),
          op.input("ProjWeight"), op.input("H0"),     op.input("C0")};
}

Status measure_lstm(const LstmSettings& settings, LstmTensors& t) {
  if (t.weight->rank() != 2 || t.input->rank() != 2)
    return KernelContext::error("Input and Weight must be matrices, found {} and {}",
                                describe(*t.input), describe(*t.weight));
  t.rows = t.input->dim(0);
  t.width = t.weight->dim(0);
  t.size = t.width;
  if (t.projection != nullptr) t.size = t.projection->rank() == 2 ? t.projection->dim(0) : -1;
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(*t.input, "Input"));
  const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
  const auto fits = [&](const Tensor* tensor, int64_t count) {
    return fits_if_given(tensor, count, t.input->dtype());
  };
  if (!fits(t.input, t.rows * 4 * t.size) || !fits(t.weight, t.width * 4 * t.size) ||
      !fits(t.projection, t.size * t.width))
    return KernelContext::error("Input {} must have 4 columns per cell, as Weight {}",
                                describe(*t.input), describe(*t.weight));
  if (!fits(t.bias, (settings.peepholes ? 7 : 4) * t.size))
    return KernelContext::error("Bias must have {} elements, found {}",
                                (settings.peepholes ? 7 : 4) * t.size, describe(*t.bias));
  if (!fits(t.h0, sequences * t.width) || !fits(t.c0, sequences * t.size))
    return KernelContext::error("H0 and C0 must have one row for each of the {} sequences",
                                sequences);
  return Ok();
}

StatusOr<LstmTensors> lstm_tensors(const KernelContext& ctx, const LstmSlots& slots,
                                   const LstmSettings& settings, bool projected) {
  LstmTensors t;
  MILLRACE_ASSIGN_OR_RETURN(t.input, needed(ctx, slots.input, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(t.weight, needed(ctx, slots.weight, "Weight"));
  if (projected) {
    MILLRACE_ASSIGN_OR_RETURN(t.projection, needed(ctx, slots.projection, "ProjWeight"));
  }
  t.bias = ctx.find_in(slots.bias);
  t.h0 = ctx.find_in(slots.h0);
  t.c0 = ctx.find_in(slots.c0);
  MILLRACE_RETURN_IF_ERROR(measure_lstm(settings, t));
  return t;
}

namespace lstm_kernels {
namespace {

// Slots of the workspace.
enum LstmPiece : size_t {
  kLstmGates,
  kLstmCells,
  kLstmHidden,
  kLstmFed,
  kLstmH0,
  kLstmC0,
  kLstmScratch
};

template <typename T>
StatusOr<const T*> ordered(const Tensor* first, const StepOrder& order, int64_t width,
                           Workspace& work, LstmPiece piece) {
  if (first == nullptr) return static_cast<const T*>(nullptr);
  MILLRACE_ASSIGN_OR_RETURN(T* const to, work.take<T>(piece, order.sequences() * width));
  order.gather_sequences(first->data<T>(), width, to);
  return static_cast<const T*>(to);
}

template <typename T>
void project(const LstmSettings& s, T* x, int64_t count) {
  activate(s.projection, x, count);
  if (s.projection_clip <= 0) return;
  const T bound = static_cast<T>(s.projection_clip);
  for (int64_t i = 0; i < count; ++i) x[i] = std::clamp(x[i], -bound, bound);
}

}  // namespace
}  // namespace lstm_kernels

template <typename T>
Status run_lstm(const KernelContext& ctx, const LstmTensors& t, const LstmSettings& s,
                const LstmOutputs& out, const StepOrder& order, Workspace& work, Gemm& gemm) {
  using namespace lstm_kernels;
  const int64_t size = t.size;
  MILLRACE_ASSIGN_OR_RETURN(T* const gates,
                            kept_or_scratch<T>(out.gates, work, kLstmGates, t.rows * 4 * size));
  MILLRACE_ASSIGN_OR_RETURN(T* const cells,
                            kept_or_scratch<T>(out.cells, work, kLstmCells, t.rows * size));
  MILLRACE_ASSIGN_OR_RETURN(T* const hidden,
                            kept_or_scratch<T>(out.hidden, work, kLstmHidden, t.rows * size));
  T* fed = hidden;
  if (t.projection != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(fed, work.take<T>(kLstmFed, t.rows * t.width));
  }
  MILLRACE_ASSIGN_OR_RETURN(T* const scratch, work.take<T>(kLstmScratch, size));
  MILLRACE_ASSIGN_OR_RETURN(const T* const h0, ordered<T>(t.h0, order, t.width, work, kLstmH0));
  MILLRACE_ASSIGN_OR_RETURN(const T* const c0, ordered<T>(t.c0, order, size, work, kLstmC0));
  order.gather(t.input->data<T>(), 4 * size, gates);
  if (t.bias != nullptr && !s.biased_input) add_to_rows(t.bias->data<T>(), t.rows, 4 * size, gates);
  for (int64_t step = 0; step < order.steps(); ++step) {
    const int64_t begin = order.start(step);
    const int64_t rows = order.count(step);
    const int64_t before = step == 0 ? 0 : order.start(step - 1);
    const T* const previous = step == 0 ? h0 : fed + before * t.width;
    const T* const previous_cells = step == 0 ? c0 : cells + before * size;
    if (previous != nullptr) {
      MILLRACE_RETURN_IF_ERROR(gemm(
          ctx.device(), {.rows = rows, .columns = 4 * size, .inner = t.width, .accumulate = true},
          previous, t.weight->data<T>(), gates + begin * 4 * size));
    }
    lstm_step(s.functions, rows, size, peepholes_of<T>(t, s), gates + begin * 4 * size,
              previous_cells, cells + begin * size, hidden + begin * size, scratch);
    if (t.projection == nullptr) continue;
    T* const to = fed + begin * t.width;
    MILLRACE_RETURN_IF_ERROR(gemm(ctx.device(), {.rows = rows, .columns = t.width, .inner = size},
                                  hidden + begin * size, t.projection->data<T>(), to));
    project(s, to, rows * t.width);
  }
  order.scatter(fed, t.width, out.fed_back->data<T>());
  order.scatter(cells, size, out.cell->data<T>());
  return Ok();
}

template Status run_lstm<float>(const KernelContext&, const LstmTensors&, const LstmSettings&,
                                const LstmOutputs&, const StepOrder&, Workspace&, Gemm&);
template Status run_lstm<double>(const KernelContext&, const LstmTensors&, const LstmSettings&,
                                 const LstmOutputs&, const StepOrder&, Workspace&, Gemm&);

namespace lstm_kernels {
namespace {

StatusOr<Kernel> make(const KernelSetup& op, bool projected) {
  const LstmSlots slots = lstm_slots(op);
  const LstmSettings settings = lstm_settings(op, projected);
  const ArgIndex fed_back = op.output(projected ? "Projection" : "Hidden");
  const ArgIndex cell = op.output("Cell");
  const ArgIndex gates = op.output("BatchGate");
  const ArgIndex cells = op.output("BatchCellPreAct");
  const ArgIndex hidden = op.output("BatchHidden");
  const auto state = std::make_shared<LstmState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LstmTensors t, lstm_tensors(ctx, slots, settings, projected));
    state->order.build(t.input->lod().last(), settings.reverse);
    const LstmOutputs out{&ctx.out(fed_back), &ctx.out(cell), ctx.find_out(gates),
                          ctx.find_out(cells), ctx.find_out(hidden)};
    if (out.gates != nullptr) out.gates->set_lod(state->order.as_lod());
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      return run_lstm<typename decltype(tag)::type>(ctx, t, settings, out, state->order,
                                                    state->work, state->gemm);
    });
  });
}

StatusOr<Kernel> lstm(const KernelSetup& op) {
  return make(op, false);
}
StatusOr<Kernel> lstmp(const KernelSetup& op) {
  return make(op, true);
}

}  // namespace
}  // namespace lstm_kernels
}  // namespace rnn

void add_rnn_lstm(KernelRegistry& registry) {
  registry.add("lstm", rnn::lstm_kernels::lstm);
  registry.add("lstmp", rnn::lstm_kernels::lstmp);
}

}  // namespace millrace::kernels
