#include <memory>

#include "kernels/cpu/rnn/lstm_tensors.h"
#include "kernels/gpu/ops/step_rows.h"
#include "kernels/registry.h"

// lstm over LoD sequences: in each time step one product and one launch.
namespace millrace::gpu {
namespace lstm_steps {
namespace {

using kernels::rnn::LstmSettings;
using kernels::rnn::LstmSlots;
using kernels::rnn::LstmTensors;

// What one op keeps between calls.
struct LstmKept {
  explicit LstmKept(const KernelSetup& op)
      : memory(memory_of(op)),
        slots(kernels::rnn::lstm_slots(op)),
        settings(kernels::rnn::lstm_settings(op, false)),
        steps(memory),
        scratch(memory) {}
  Memory& memory;
  LstmSlots slots;
  LstmSettings settings;
  StepRows steps;
  ScratchFloats scratch;

  // The tensors of a call, and its time steps. Errors: those of the CPU kernel; rejects other
  // types.
  StatusOr<LstmTensors> begin(const KernelContext& ctx) {
    MILLRACE_ASSIGN_OR_RETURN(const LstmTensors t,
                              kernels::rnn::lstm_tensors(ctx, slots, settings, false));
    MILLRACE_RETURN_IF_ERROR(all_floats({t.input}));
    if (t.size == 0 || t.rows * 4 * t.size >= int64_t{1} << 31)
      return refuse("Input {}", describe(*t.input));
    MILLRACE_RETURN_IF_ERROR(steps.build(t.input->lod().last(), settings.reverse));
    return t;
  }
  [[nodiscard]] const float* peepholes(const LstmTensors& t) const {
    return settings.peepholes && t.bias != nullptr ? floats(t.bias) + 4 * t.size : nullptr;
  }
  // Copies first states in the order of the sequences; null stays null.
  [[nodiscard]] StatusOr<const float*> in_order(const Tensor* states, int64_t size,
                                                float* to) const {
    if (states == nullptr) return static_cast<const float*>(nullptr);
    MILLRACE_RETURN_IF_ERROR(steps.pick(steps.sequences(), floats(states), nullptr, size,
                                        steps.order().sequences(), to));
    return static_cast<const float*>(to);
  }
};

GateFunction gate_function(kernels::rnn::Activation activation) {
  return static_cast<GateFunction>(activation);
}

// \param run  one time step, or its gradient
template <typename Step>
void set_functions(const LstmKept& op, const LstmTensors& t, Step& run) {
  run.peepholes = op.peepholes(t);
  run.size = Divider(t.size);
  run.gate = gate_function(op.settings.functions.gate);
  run.cell = gate_function(op.settings.functions.cell);
  run.candidate = gate_function(op.settings.functions.candidate);
}

struct LstmBuffers {
  float* products;
  float* gates;
  float* cells;
  float* hidden;
  float* h0;
  float* c0;
};

Status run_steps(LstmKept& op, const LstmTensors& t, const LstmBuffers& b, Tensor& hidden,
                 Tensor& cell) {
  Device& device = op.memory.device();
  const auto& order = op.steps.order();
  MILLRACE_ASSIGN_OR_RETURN(const float* const h0, op.in_order(t.h0, t.size, b.h0));
  MILLRACE_ASSIGN_OR_RETURN(const float* const c0, op.in_order(t.c0, t.size, b.c0));
  for (int64_t step = 0; step < order.steps(); ++step) {
    const int64_t begin = order.start(step);
    const int64_t before = step == 0 ? 0 : order.start(step - 1);
    const float* const previous = step == 0 ? h0 : b.hidden + before * t.size;
    if (previous != nullptr) {
      MILLRACE_RETURN_IF_ERROR(device.multiply({.a = previous,
                                                .b = floats(t.weight),
                                                .c = b.products,
                                                .rows = order.count(step),
                                                .inner = t.size,
                                                .columns = 4 * t.size}));
    }
    LstmCell run{};
    run.sums = {floats(t.input), op.steps.rows(begin), floats(t.bias)};
    run.products = previous == nullptr ? nullptr : b.products;
    run.previous = step == 0 ? c0 : b.cells + before * t.size;
    run.gates = b.gates + begin * 4 * t.size;
    run.cells = b.cells + begin * t.size;
    run.hidden = b.hidden + begin * t.size;
    run.hidden_by_row = floats(hidden);
    run.cells_by_row = floats(cell);
    set_functions(op, t, run);
    MILLRACE_RETURN_IF_ERROR(each(device, run, order.count(step) * t.size));
  }
  return Ok();
}

StatusOr<Kernel> run_sequences(const KernelSetup& setup) {
  return Kernel([op = std::make_shared<LstmKept>(setup), hidden = setup.output("Hidden"),
                 cell = setup.output("Cell"), gates = setup.output("BatchGate"),
                 cells = setup.output("BatchCellPreAct")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LstmTensors t, op->begin(ctx));
    const auto& order = op->steps.order();
    for (Tensor* const out : {&ctx.out(hidden), &ctx.out(cell)})
      MILLRACE_RETURN_IF_ERROR(output_of_size(out, t.rows * t.size).status());
    Tensor* const kept = ctx.find_out(gates);
    MILLRACE_ASSIGN_OR_RETURN(float* const to_gates, output_of_size(kept, t.rows * 4 * t.size));
    MILLRACE_ASSIGN_OR_RETURN(float* const to_cells,
                              output_of_size(ctx.find_out(cells), t.rows * t.size));
    const int64_t most = order.steps() == 0 ? 0 : order.count(0);
    LstmBuffers b{};
    op->scratch.add(&b.products, most * 4 * t.size);
    op->scratch.add(&b.gates, t.rows * 4 * t.size, to_gates);
    op->scratch.add(&b.cells, t.rows * t.size, to_cells);
    op->scratch.add(&b.hidden, t.rows * t.size);
    op->scratch.add(&b.h0, t.h0 == nullptr ? 0 : order.sequences() * t.size);
    op->scratch.add(&b.c0, t.c0 == nullptr ? 0 : order.sequences() * t.size);
    MILLRACE_RETURN_IF_ERROR(op->scratch.open());
    if (kept != nullptr) kept->set_lod(order.as_lod());
    return run_steps(*op, t, b, ctx.out(hidden), ctx.out(cell));
  });
}

// Outputs of the forward op and the gradient that arrives.
struct LstmResults {
  const Tensor* hidden;
  const Tensor* dhidden;
  const Tensor* cell;
  const Tensor* gates;
};

// The gradients that are wanted; null: not requested.
struct LstmWanted {
  Tensor* input;
  Tensor* weight;
  Tensor* bias;
  Tensor* h0;
  Tensor* c0;
};

struct LstmBackBuffers {
  float* hidden;
  float* dhidden;
  float* cells;
  float* dcells;
  float* dgates;
  float* before;
  float* c0;
  float* dh0;
};

// Time steps from last to first.
Status run_steps_back(LstmKept& op, const LstmTensors& t, const LstmResults& r,
                      const LstmBackBuffers& b, const float* c0) {
  Device& device = op.memory.device();
  const auto& order = op.steps.order();
  for (int64_t step = order.steps() - 1; step >= 0; --step) {
    const int64_t begin = order.start(step);
    const int64_t before = step == 0 ? 0 : order.start(step - 1);
    LstmCellGradient run{};
    run.gates = floats(r.gates) + begin * 4 * t.size;
    run.previous = step == 0 ? c0 : b.cells + before * t.size;
    run.cells = b.cells + begin * t.size;
    run.dhidden = b.dhidden + begin * t.size;
    run.dcells = b.dcells;
    run.dgates = b.dgates + begin * 4 * t.size;
    set_functions(op, t, run);
    MILLRACE_RETURN_IF_ERROR(each(device, run, order.count(step) * t.size));
    if (step == 0) break;
    MILLRACE_RETURN_IF_ERROR(device.multiply({.a = run.dgates,
                                              .b = floats(t.weight),
                                              .c = b.dhidden + before * t.size,
                                              .rows = order.count(step),
                                              .inner = 4 * t.size,
                                              .columns = t.size,
                                              .transpose_b = true,
                                              .beta = 1.0F}));
  }
  return Ok();
}

Status bias_gradient(LstmKept& op, const LstmTensors& t, const LstmBackBuffers& b, float* to) {
  Device& device = op.memory.device();
  const int64_t size = t.size;
  MILLRACE_RETURN_IF_ERROR(sum_columns(device, b.dgates, t.rows, 4 * size, to));
  if (op.peepholes(t) == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(
      op.steps.pick(op.steps.before(), b.cells, floats(t.c0), size, t.rows, b.before));
  for (int64_t gate = 0; gate < 3; ++gate) {
    const ProductSums sums{b.dgates + (gate + 1) * size,
                           gate == 2 ? b.cells : b.before,
                           to + (4 + gate) * size,
                           t.rows,
                           4 * size,
                           size};
    MILLRACE_RETURN_IF_ERROR(lanes(device, sums, size));
  }
  return Ok();
}

Status weight_gradient(LstmKept& op, const LstmTensors& t, const LstmBackBuffers& b, float* to) {
  MILLRACE_RETURN_IF_ERROR(
      op.steps.pick(op.steps.before(), b.hidden, floats(t.h0), t.size, t.rows, b.before));
  return op.memory.device().multiply({.a = b.before,
                                      .b = b.dgates,
                                      .c = to,
                                      .rows = t.size,
                                      .inner = t.rows,
                                      .columns = 4 * t.size,
                                      .transpose_a = true});
}

// Gradients of the first states. Sequences without rows have none.
Status state_gradients(LstmKept& op, const LstmTensors& t, const LstmBackBuffers& b,
                       const LstmWanted& to) {
  const auto& order = op.steps.order();
  const int64_t sequences = order.sequences();
  const StepRows& steps = op.steps;
  if (to.c0 != nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        steps.pick(steps.ranks(), b.dcells, nullptr, t.size, sequences, floats(to.c0)));
  }
  if (to.h0 == nullptr) return Ok();
  Device& device = op.memory.device();
  MILLRACE_RETURN_IF_ERROR(each(device, Fill{b.dh0, 0.0F}, sequences * t.size));
  MILLRACE_RETURN_IF_ERROR(device.multiply({.a = b.dgates,
                                            .b = floats(t.weight),
                                            .c = b.dh0,
                                            .rows = order.count(0),
                                            .inner = 4 * t.size,
                                            .columns = t.size,
                                            .transpose_b = true}));
  return steps.pick(steps.ranks(), b.dh0, nullptr, t.size, sequences, floats(to.h0));
}

Status run_back(LstmKept& op, const LstmTensors& t, const LstmResults& r, const LstmWanted& to) {
  const auto& order = op.steps.order();
  const int64_t size = t.size;
  LstmBackBuffers b{};
  op.scratch.add(&b.hidden, t.rows * size);
  op.scratch.add(&b.dhidden, t.rows * size);
  op.scratch.add(&b.cells, t.rows * size);
  op.scratch.add(&b.dcells, order.sequences() * size);
  op.scratch.add(&b.dgates, t.rows * 4 * size);
  op.scratch.add(&b.before, t.rows * size);
  op.scratch.add(&b.c0, t.c0 == nullptr ? 0 : order.sequences() * size);
  op.scratch.add(&b.dh0, to.h0 == nullptr ? 0 : order.sequences() * size);
  MILLRACE_RETURN_IF_ERROR(op.scratch.open());
  const StepRows& steps = op.steps;
  MILLRACE_RETURN_IF_ERROR(
      each(op.memory.device(), Fill{b.dcells, 0.0F}, order.sequences() * size));
  for (const auto& [from, copy] :
       {std::pair(r.hidden, b.hidden), std::pair(r.dhidden, b.dhidden), std::pair(r.cell, b.cells)})
    MILLRACE_RETURN_IF_ERROR(steps.pick(steps.rows(), floats(from), nullptr, size, t.rows, copy));
  MILLRACE_ASSIGN_OR_RETURN(const float* const c0, op.in_order(t.c0, size, b.c0));
  MILLRACE_RETURN_IF_ERROR(run_steps_back(op, t, r, b, c0));
  if (to.weight != nullptr) MILLRACE_RETURN_IF_ERROR(weight_gradient(op, t, b, floats(to.weight)));
  if (to.bias != nullptr) MILLRACE_RETURN_IF_ERROR(bias_gradient(op, t, b, floats(to.bias)));
  if (to.input != nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        steps.pick(steps.positions(), b.dgates, nullptr, 4 * size, t.rows, floats(to.input)));
  }
  return state_gradients(op, t, b, to);
}

StatusOr<Kernel> gpu_lstm_grad(const KernelSetup& setup) {
  struct Args {
    ArgIndex hidden, dhidden, cell, gates, dinput, dweight, dbias, dh0, dc0;
  };
  const Args args{
      setup.input("Hidden"),     setup.input("Hidden@GRAD"), setup.input("Cell"),
      setup.input("BatchGate"),  setup.output("Input@GRAD"), setup.output("Weight@GRAD"),
      setup.output("Bias@GRAD"), setup.output("H0@GRAD"),    setup.output("C0@GRAD")};
  return Kernel([op = std::make_shared<LstmKept>(setup), args](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LstmTensors t, op->begin(ctx));
    LstmResults r{};
    MILLRACE_ASSIGN_OR_RETURN(r.hidden, needed_here(ctx, args.hidden, "Hidden"));
    MILLRACE_ASSIGN_OR_RETURN(r.dhidden, needed_here(ctx, args.dhidden, "Hidden@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(r.cell, needed_here(ctx, args.cell, "Cell"));
    MILLRACE_ASSIGN_OR_RETURN(r.gates, needed_here(ctx, args.gates, "BatchGate"));
    MILLRACE_RETURN_IF_ERROR(all_floats({r.hidden, r.dhidden, r.cell, r.gates}));
    const int64_t count = t.rows * t.size;
    if (count == 0 || r.hidden->numel() != count || r.dhidden->numel() != count ||
        r.cell->numel() != count || r.gates->numel() != 4 * count)
      return refuse("outputs of the forward op do not have the {} rows of Input", t.rows);
    LstmWanted to{};
    MILLRACE_RETURN_IF_ERROR(find_common_gradients(ctx, args, t, to));
    if (t.c0 != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(to.c0, output_like(ctx, args.dc0, *t.c0));
    }
    return run_back(*op, t, r, to);
  });
}

}  // namespace
}  // namespace lstm_steps

void add_lstm(KernelRegistry& registry) {
  registry.add("lstm", lstm_steps::run_sequences);
  registry.add("lstm_grad", lstm_steps::gpu_lstm_grad);
}

}  // namespace millrace::gpu
