#include <memory>

#include "kernels/cpu/rnn/gru_tensors.h"
#include "kernels/gpu/ops/step_rows.h"
#include "kernels/registry.h"

// gru over LoD sequences, and gru_unit, one time step of it.
namespace millrace::gpu {
namespace gru_steps {
namespace {

using kernels::rnn::GruFunctions;
using kernels::rnn::GruTensors;

GateFunction gate_function(kernels::rnn::Activation activation) {
  return static_cast<GateFunction>(activation);
}

// One time step; pointers are to its first row.
struct GruStep {
  int64_t rows;           // of the time step
  int64_t size;           // number of cells
  const float* weight;    // [size, 2 * size], then [size, size]
  const float* previous;  // null: zeros
  float* gates;
  float* reset;
  float* hidden;
  float* products;  // scratch, [rows, 2 * size]
};

Status run_step(Device& device, const GruFunctions& f, const GruStep& s, const GateSums& sums,
                float* hidden_by_row) {
  if (s.previous != nullptr) {
    MILLRACE_RETURN_IF_ERROR(device.multiply({.a = s.previous,
                                              .b = s.weight,
                                              .c = s.products,
                                              .rows = s.rows,
                                              .inner = s.size,
                                              .columns = 2 * s.size}));
  }
  const float* const products = s.previous == nullptr ? nullptr : s.products;
  MILLRACE_RETURN_IF_ERROR(each(device,
                                GruGates{sums, products, s.previous, s.gates, s.reset,
                                         Divider(s.size), gate_function(f.gate)},
                                s.rows * s.size));
  if (s.previous != nullptr) {
    MILLRACE_RETURN_IF_ERROR(device.multiply({.a = s.reset,
                                              .b = s.weight + 2 * s.size * s.size,
                                              .c = s.products,
                                              .rows = s.rows,
                                              .inner = s.size,
                                              .columns = s.size}));
  }
  return each(device,
              GruCell{products, s.previous, sums.rows, s.gates, s.hidden, hidden_by_row,
                      Divider(s.size), gate_function(f.candidate), f.origin},
              s.rows * s.size);
}

// Gradients of one time step; pointers are to its first row.
struct GruStepBack {
  const float* dhidden;
  float* dcandidate;
  float* dfirst;
  float* dprevious;  // is added to
  float* dreset;     // scratch
};

// \param s  as run_step() left it
Status run_step_back(Device& device, const GruFunctions& f, const GruStep& s,
                     const GruStepBack& b) {
  const int64_t count = s.rows * s.size;
  MILLRACE_RETURN_IF_ERROR(each(
      device,
      GruCellGradient{s.gates, s.previous, b.dhidden, b.dcandidate, b.dfirst, b.dprevious,
                      Divider(s.size), gate_function(f.gate), gate_function(f.candidate), f.origin},
      count));
  MILLRACE_RETURN_IF_ERROR(device.multiply({.a = b.dcandidate,
                                            .b = s.weight + 2 * s.size * s.size,
                                            .c = b.dreset,
                                            .rows = s.rows,
                                            .inner = s.size,
                                            .columns = s.size,
                                            .transpose_b = true}));
  MILLRACE_RETURN_IF_ERROR(
      each(device,
           GruResetGradient{s.gates, s.previous, b.dreset, b.dfirst, b.dprevious, Divider(s.size),
                            gate_function(f.gate)},
           count));
  return device.multiply({.a = b.dfirst,
                          .b = s.weight,
                          .c = b.dprevious,
                          .rows = s.rows,
                          .inner = 2 * s.size,
                          .columns = s.size,
                          .transpose_b = true,
                          .beta = 1.0F});
}

// Gradients over all rows together; null: not requested.
struct GruWanted {
  Tensor* input;
  Tensor* weight;
  Tensor* bias;
  Tensor* h0;  // or of HiddenPrev
};

struct GruSums {
  int64_t rows;
  int64_t size;
  const float* before;  // previous state of each row
  const float* reset;
  const float* dcandidate;
  const float* dfirst;
  const int64_t* from;  // position of each row of the input; null: the same
};

Status sum_gradients(Device& device, const GruSums& s, const GruWanted& to) {
  if (float* const weight = floats(to.weight)) {
    MILLRACE_RETURN_IF_ERROR(device.multiply({.a = s.before,
                                              .b = s.dfirst,
                                              .c = weight,
                                              .rows = s.size,
                                              .inner = s.rows,
                                              .columns = 2 * s.size,
                                              .transpose_a = true}));
    MILLRACE_RETURN_IF_ERROR(device.multiply({.a = s.reset,
                                              .b = s.dcandidate,
                                              .c = weight + 2 * s.size * s.size,
                                              .rows = s.size,
                                              .inner = s.rows,
                                              .columns = s.size,
                                              .transpose_a = true}));
  }
  if (float* const bias = floats(to.bias)) {
    MILLRACE_RETURN_IF_ERROR(sum_columns(device, s.dfirst, s.rows, 2 * s.size, bias));
    MILLRACE_RETURN_IF_ERROR(sum_columns(device, s.dcandidate, s.rows, s.size, bias + 2 * s.size));
  }
  if (to.input == nullptr) return Ok();
  return each(
      device,
      GruInputGradient{s.dfirst, s.dcandidate, s.from, floats(to.input), Divider(3 * s.size)},
      to.input->numel());
}

// What one op keeps between calls.
struct GruKept {
  explicit GruKept(const KernelSetup& op)
      : memory(memory_of(op)),
        input(op.input("Input")),
        weight(op.input("Weight")),
        bias(op.input("Bias")),
        h0(op.input("H0")),
        state(kernels::rnn::gru_state(op)),
        steps(memory),
        scratch(memory) {}
  Memory& memory;
  ArgIndex input, weight, bias, h0;
  std::shared_ptr<kernels::rnn::GruState> state;
  StepRows steps;
  ScratchFloats scratch;

  // Errors: those of the CPU kernel; rejects other types.
  StatusOr<GruTensors> begin(const KernelContext& ctx) {
    GruTensors t;
    MILLRACE_ASSIGN_OR_RETURN(t.input, needed_here(ctx, input, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(t.weight, needed_here(ctx, weight, "Weight"));
    t.bias = ctx.find_in(bias);
    t.h0 = ctx.find_in(h0);
    MILLRACE_RETURN_IF_ERROR(all_floats({t.input}));
    MILLRACE_RETURN_IF_ERROR(kernels::rnn::measure_gru(t));
    if (t.size == 0 || t.rows * 3 * t.size >= int64_t{1} << 31)
      return refuse("Input {}", describe(*t.input));
    MILLRACE_RETURN_IF_ERROR(steps.build(t.input->lod().last(), state->reverse));
    return t;
  }
  // First states in the order of the sequences; null: zeros.
  [[nodiscard]] StatusOr<const float*> first_states(const GruTensors& t, float* to) const {
    if (t.h0 == nullptr) return static_cast<const float*>(nullptr);
    MILLRACE_RETURN_IF_ERROR(steps.pick(steps.sequences(), floats(t.h0), nullptr, t.size,
                                        steps.order().sequences(), to));
    return static_cast<const float*>(to);
  }
};

// Arrays over all time steps.
struct GruArrays {
  float* gates;
  float* reset;
  float* hidden;
  float* products;
  float* h0;
};

GruStep step_of(const GruKept& op, const GruTensors& t, const GruArrays& a, const float* h0,
                int64_t step) {
  const auto& order = op.steps.order();
  const int64_t begin = order.start(step);
  return {order.count(step),
          t.size,
          floats(t.weight),
          step == 0 ? h0 : a.hidden + order.start(step - 1) * t.size,
          a.gates + begin * 3 * t.size,
          a.reset + begin * t.size,
          a.hidden + begin * t.size,
          a.products};
}

StatusOr<Kernel> run_sequences(const KernelSetup& setup) {
  return Kernel([op = std::make_shared<GruKept>(setup), hidden = setup.output("Hidden"),
                 gates = setup.output("BatchGate"), reset = setup.output("BatchResetHiddenPrev"),
                 ordered = setup.output("BatchHidden")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GruTensors t, op->begin(ctx));
    const auto& order = op->steps.order();
    const int64_t count = t.rows * t.size;
    Tensor* const kept = ctx.find_out(gates);
    Tensor* const states = ctx.find_out(ordered);
    MILLRACE_ASSIGN_OR_RETURN(float* const to, output_of_size(&ctx.out(hidden), count));
    MILLRACE_ASSIGN_OR_RETURN(float* const to_gates, output_of_size(kept, 3 * count));
    MILLRACE_ASSIGN_OR_RETURN(float* const to_reset, output_of_size(ctx.find_out(reset), count));
    MILLRACE_ASSIGN_OR_RETURN(float* const to_hidden, output_of_size(states, count));
    GruArrays a{};
    op->scratch.add(&a.gates, 3 * count, to_gates);
    op->scratch.add(&a.reset, count, to_reset);
    op->scratch.add(&a.hidden, count, to_hidden);
    op->scratch.add(&a.products, order.sequences() * 2 * t.size);
    op->scratch.add(&a.h0, order.sequences() * t.size);
    MILLRACE_RETURN_IF_ERROR(op->scratch.open());
    for (Tensor* const with_lod : {kept, states}) {
      if (with_lod != nullptr) with_lod->set_lod(order.as_lod());
    }
    MILLRACE_ASSIGN_OR_RETURN(const float* const h0, op->first_states(t, a.h0));
    for (int64_t step = 0; step < order.steps(); ++step) {
      const GateSums sums{floats(t.input), op->steps.rows(order.start(step)), floats(t.bias)};
      MILLRACE_RETURN_IF_ERROR(run_step(op->memory.device(), op->state->functions,
                                        step_of(*op, t, a, h0, step), sums, to));
    }
    return Ok();
  });
}

// Outputs of the forward op and the gradient that arrives.
struct GruResults {
  const Tensor* gates;
  const Tensor* reset;
  const Tensor* hidden;
  const Tensor* dhidden;
};

Status run_back(GruKept& op, const GruTensors& t, const GruResults& r, const GruWanted& to) {
  const auto& order = op.steps.order();
  const StepRows& steps = op.steps;
  Device& device = op.memory.device();
  const int64_t count = t.rows * t.size;
  const int64_t first = order.sequences() * t.size;
  GruArrays a{};
  float* dhidden = nullptr;
  float* dcandidate = nullptr;
  float* dfirst = nullptr;
  float* before = nullptr;
  float* dh0 = nullptr;
  // the results are not written
  op.scratch.add(&a.gates, 3 * count, const_cast<float*>(floats(r.gates)));
  op.scratch.add(&a.reset, count, const_cast<float*>(floats(r.reset)));
  op.scratch.add(&a.hidden, count, const_cast<float*>(floats(r.hidden)));
  op.scratch.add(&a.products, first);
  op.scratch.add(&a.h0, first);
  op.scratch.add(&dhidden, count);
  op.scratch.add(&dcandidate, count);
  op.scratch.add(&dfirst, 2 * count);
  op.scratch.add(&before, count);
  op.scratch.add(&dh0, first);
  MILLRACE_RETURN_IF_ERROR(op.scratch.open());
  MILLRACE_RETURN_IF_ERROR(each(device, Fill{dh0, 0.0F}, first));
  MILLRACE_RETURN_IF_ERROR(
      steps.pick(steps.rows(), floats(r.dhidden), nullptr, t.size, t.rows, dhidden));
  MILLRACE_ASSIGN_OR_RETURN(const float* const h0, op.first_states(t, a.h0));
  for (int64_t step = order.steps() - 1; step >= 0; --step) {
    const int64_t begin = order.start(step) * t.size;
    const GruStepBack back{dhidden + begin, dcandidate + begin, dfirst + 2 * begin,
                           step == 0 ? dh0 : dhidden + order.start(step - 1) * t.size, a.products};
    MILLRACE_RETURN_IF_ERROR(
        run_step_back(device, op.state->functions, step_of(op, t, a, h0, step), back));
  }
  if (to.weight != nullptr)
    MILLRACE_RETURN_IF_ERROR(
        steps.pick(steps.before(), a.hidden, floats(t.h0), t.size, t.rows, before));
  const GruSums sums{t.rows, t.size, before, a.reset, dcandidate, dfirst, steps.positions()};
  MILLRACE_RETURN_IF_ERROR(sum_gradients(device, sums, to));
  if (to.h0 == nullptr) return Ok();
  return steps.pick(steps.ranks(), dh0, nullptr, t.size, order.sequences(), floats(to.h0));
}

StatusOr<Kernel> gpu_gru_grad(const KernelSetup& setup) {
  struct Args {
    ArgIndex gates, reset, hidden, dhidden, dinput, dweight, dbias, dh0;
  };
  const Args args{setup.input("BatchGate"),   setup.input("BatchResetHiddenPrev"),
                  setup.input("BatchHidden"), setup.input("Hidden@GRAD"),
                  setup.output("Input@GRAD"), setup.output("Weight@GRAD"),
                  setup.output("Bias@GRAD"),  setup.output("H0@GRAD")};
  return Kernel([op = std::make_shared<GruKept>(setup), args](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GruTensors t, op->begin(ctx));
    GruResults r{};
    MILLRACE_ASSIGN_OR_RETURN(r.gates, needed_here(ctx, args.gates, "BatchGate"));
    MILLRACE_ASSIGN_OR_RETURN(r.reset, needed_here(ctx, args.reset, "BatchResetHiddenPrev"));
    MILLRACE_ASSIGN_OR_RETURN(r.hidden, needed_here(ctx, args.hidden, "BatchHidden"));
    MILLRACE_ASSIGN_OR_RETURN(r.dhidden, needed_here(ctx, args.dhidden, "Hidden@GRAD"));
    MILLRACE_RETURN_IF_ERROR(all_floats({r.gates, r.reset, r.hidden, r.dhidden}));
    const int64_t count = t.rows * t.size;
    if (count == 0 || r.gates->numel() != 3 * count || r.reset->numel() != count ||
        r.hidden->numel() != count || r.dhidden->numel() != count)
      return refuse("outputs of the forward op do not have the {} rows of Input", t.rows);
    GruWanted to{};
    MILLRACE_RETURN_IF_ERROR(find_common_gradients(ctx, args, t, to));
    return run_back(*op, t, r, to);
  });
}

struct UnitKept {
  explicit UnitKept(const KernelSetup& op)
      : memory(memory_of(op)),
        input(op.input("Input")),
        previous(op.input("HiddenPrev")),
        weight(op.input("Weight")),
        bias(op.input("Bias")),
        functions{static_cast<kernels::rnn::Activation>(op.attr<int32_t>("gate_activation")),
                  static_cast<kernels::rnn::Activation>(op.attr<int32_t>("activation")),
                  op.attr<bool>("origin_mode")},
        scratch(memory) {}
  Memory& memory;
  ArgIndex input, previous, weight, bias;
  GruFunctions functions;
  ScratchFloats scratch;

  // The tensors; H0 is the previous state. Errors: rejects what does not fit.
  [[nodiscard]] StatusOr<GruTensors> find(const KernelContext& ctx) const {
    GruTensors t;
    MILLRACE_ASSIGN_OR_RETURN(t.input, needed_here(ctx, input, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(t.h0, needed_here(ctx, previous, "HiddenPrev"));
    MILLRACE_ASSIGN_OR_RETURN(t.weight, needed_here(ctx, weight, "Weight"));
    t.bias = ctx.find_in(bias);
    MILLRACE_RETURN_IF_ERROR(all_floats({t.input, t.h0, t.weight, t.bias}));
    if (t.h0->rank() != 2 || t.h0->numel() == 0) return refuse("HiddenPrev {}", describe(*t.h0));
    t.rows = t.h0->dim(0);
    t.size = t.h0->dim(1);
    if (t.input->numel() != t.rows * 3 * t.size || t.weight->numel() != 3 * t.size * t.size ||
        (t.bias != nullptr && t.bias->numel() != 3 * t.size) ||
        t.input->numel() >= int64_t{1} << 31)
      return refuse("Input {} and Weight {}", describe(*t.input), describe(*t.weight));
    return t;
  }
};

StatusOr<Kernel> gpu_gru_unit(const KernelSetup& setup) {
  return Kernel([op = std::make_shared<UnitKept>(setup), gate = setup.output("Gate"),
                 reset = setup.output("ResetHiddenPrev"),
                 hidden = setup.output("Hidden")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GruTensors t, op->find(ctx));
    const int64_t count = t.rows * t.size;
    MILLRACE_ASSIGN_OR_RETURN(float* const to, output_of_size(&ctx.out(hidden), count));
    MILLRACE_ASSIGN_OR_RETURN(float* const gates, output_of_size(ctx.find_out(gate), 3 * count));
    MILLRACE_ASSIGN_OR_RETURN(float* const through, output_of_size(ctx.find_out(reset), count));
    GruStep s{t.rows, t.size, floats(t.weight), floats(t.h0), nullptr, nullptr, to, nullptr};
    op->scratch.add(&s.gates, 3 * count, gates);
    op->scratch.add(&s.reset, count, through);
    op->scratch.add(&s.products, 2 * count);
    MILLRACE_RETURN_IF_ERROR(op->scratch.open());
    return run_step(op->memory.device(), op->functions, s,
                    {floats(t.input), nullptr, floats(t.bias)}, nullptr);
  });
}

Status run_unit_back(UnitKept& op, const GruTensors& t, const GruResults& r, const GruWanted& to) {
  const int64_t count = t.rows * t.size;
  GruStepBack back{floats(r.dhidden), nullptr, nullptr, floats(to.h0), nullptr};
  op.scratch.add(&back.dcandidate, count);
  op.scratch.add(&back.dfirst, 2 * count);
  op.scratch.add(&back.dreset, count);
  op.scratch.add(&back.dprevious, count, floats(to.h0));
  MILLRACE_RETURN_IF_ERROR(op.scratch.open());
  Device& device = op.memory.device();
  MILLRACE_RETURN_IF_ERROR(each(device, Fill{back.dprevious, 0.0F}, count));
  // the results are not written
  const GruStep s{t.rows,
                  t.size,
                  floats(t.weight),
                  floats(t.h0),
                  const_cast<float*>(floats(r.gates)),
                  const_cast<float*>(floats(r.reset)),
                  nullptr,
                  nullptr};
  MILLRACE_RETURN_IF_ERROR(run_step_back(device, op.functions, s, back));
  return sum_gradients(
      device, {t.rows, t.size, s.previous, s.reset, back.dcandidate, back.dfirst, nullptr}, to);
}

StatusOr<Kernel> gpu_gru_unit_grad(const KernelSetup& setup) {
  struct Args {
    ArgIndex gate, reset, dhidden, dinput, dh0, dweight, dbias;
  };
  const Args args{
      setup.input("Gate"),        setup.input("ResetHiddenPrev"),  setup.input("Hidden@GRAD"),
      setup.output("Input@GRAD"), setup.output("HiddenPrev@GRAD"), setup.output("Weight@GRAD"),
      setup.output("Bias@GRAD")};
  return Kernel([op = std::make_shared<UnitKept>(setup), args](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GruTensors t, op->find(ctx));
    GruResults r{};
    MILLRACE_ASSIGN_OR_RETURN(r.gates, needed_here(ctx, args.gate, "Gate"));
    MILLRACE_ASSIGN_OR_RETURN(r.reset, needed_here(ctx, args.reset, "ResetHiddenPrev"));
    MILLRACE_ASSIGN_OR_RETURN(r.dhidden, needed_here(ctx, args.dhidden, "Hidden@GRAD"));
    MILLRACE_RETURN_IF_ERROR(all_floats({r.gates, r.reset, r.dhidden}));
    const int64_t count = t.rows * t.size;
    if (r.gates->numel() != 3 * count || r.reset->numel() != count || r.dhidden->numel() != count)
      return refuse("Gate {} and Hidden@GRAD {}", describe(*r.gates), describe(*r.dhidden));
    GruWanted to{};
    MILLRACE_RETURN_IF_ERROR(find_common_gradients(ctx, args, t, to));
    if (to.h0 != nullptr && to.h0->raw() == r.dhidden->raw())
      return refuse("a gradient shares memory with HiddenPrev@GRAD");
    return run_unit_back(*op, t, r, to);
  });
}

}  // namespace
}  // namespace gru_steps

void add_gru(KernelRegistry& registry) {
  registry.add("gru", gru_steps::run_sequences);
  registry.add("gru_grad", gru_steps::gpu_gru_grad);
  registry.add("gru_unit", gru_steps::gpu_gru_unit);
  registry.add("gru_unit_grad", gru_steps::gpu_gru_unit_grad);
}

}  // namespace millrace::gpu
