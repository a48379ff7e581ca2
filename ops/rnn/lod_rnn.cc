#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Recurrent layers of fluid over LoD sequences. Their inputs are already projected, so the width of
// the input is a multiple of the number of cells.
namespace millrace::ops {
namespace lod_rnn {
namespace {

// Weight must be [size, gates * size]; the size is -1 if it is not known.
StatusOr<int64_t> cell_size(const InferContext& ctx, llvm::StringRef input_slot, int64_t gates) {
  const VarMeta& weight = ctx.input("Weight");
  const VarMeta& input = ctx.input(input_slot);
  int64_t size = -1;
  if (dims_known(weight)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Weight", 2, 2));
    size = weight.dims[0];
    if (size >= 0 && !dims_agree(weight.dims[1], gates * size)) {
      return ctx.error("'Weight' has shape {}, expected [size, {} * size]", dims_text(weight.dims),
                       gates);
    }
  }
  if (dims_known(input)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, input_slot, 2, 2));
    if (size >= 0 && !dims_agree(input.dims[1], gates * size)) {
      return ctx.error("'{}' has shape {}, expected {} columns, {} for each of the {} cells",
                       input_slot.str(), dims_text(input.dims), gates * size, gates, size);
    }
  }
  return size;
}

VarMeta rows_of(const VarMeta& input, int64_t width, bool with_lod) {
  VarMeta out = with_lod ? tensor_with_lod_of(input, input.dtype, {-1, width})
                         : tensor_meta(input.dtype, {-1, width});
  if (dims_known(input) && input.rank() > 0) out.dims[0] = input.dims[0];
  return out;
}

int64_t times(int64_t factor, int64_t size) {
  return size < 0 ? -1 : factor * size;
}

Status check_bias(const InferContext& ctx, int64_t width) {
  const VarMeta& bias = ctx.input("Bias");
  if (!ctx.has_input("Bias") || !dims_known(bias) || width < 0) return Ok();
  const int64_t count = dims_product(bias.dims);
  if (!dims_agree(count, width)) {
    return ctx.error("'Bias' has shape {}, expected [1, {}]", dims_text(bias.dims), width);
  }
  return Ok();
}

Status infer_lstm(InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  int64_t size = -1;
  MILLRACE_ASSIGN_OR_RETURN(size, cell_size(ctx, "Input", 4));
  const int64_t bias = ctx.attr<bool>("use_peepholes") ? 7 : 4;
  MILLRACE_RETURN_IF_ERROR(check_bias(ctx, times(bias, size)));
  ctx.set_output("Hidden", rows_of(input, size, /*with_lod=*/true));
  ctx.set_output("Cell", rows_of(input, size, /*with_lod=*/true));
  ctx.set_output("BatchGate", rows_of(input, times(4, size), /*with_lod=*/false));
  ctx.set_output("BatchCellPreAct", rows_of(input, size, /*with_lod=*/false));
  return Ok();
}

Status infer_lstmp(InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const VarMeta& projection = ctx.input("ProjWeight");
  if (!dims_known(projection)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "ProjWeight", 2, 2));
  const int64_t size = projection.dims[0];
  const int64_t width = projection.dims[1];
  const VarMeta& weight = ctx.input("Weight");
  if (dims_known(weight) && (weight.rank() != 2 || !dims_agree(weight.dims[0], width) ||
                             !dims_agree(weight.dims[1], times(4, size)))) {
    return ctx.error("'Weight' has shape {}, expected [{}, {}] for 'ProjWeight' {}",
                     dims_text(weight.dims), width, times(4, size), dims_text(projection.dims));
  }
  ctx.set_output("Projection", rows_of(input, width, /*with_lod=*/true));
  ctx.set_output("Cell", rows_of(input, size, /*with_lod=*/true));
  ctx.set_output("BatchGate", rows_of(input, times(4, size), /*with_lod=*/false));
  ctx.set_output("BatchCellPreAct", rows_of(input, size, /*with_lod=*/false));
  ctx.set_output("BatchHidden", rows_of(input, size, /*with_lod=*/false));
  return Ok();
}

Status infer_gru(InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  int64_t size = -1;
  MILLRACE_ASSIGN_OR_RETURN(size, cell_size(ctx, "Input", 3));
  MILLRACE_RETURN_IF_ERROR(check_bias(ctx, times(3, size)));
  ctx.set_output("Hidden", rows_of(input, size, /*with_lod=*/true));
  ctx.set_output("BatchGate", rows_of(input, times(3, size), /*with_lod=*/false));
  ctx.set_output("BatchResetHiddenPrev", rows_of(input, size, /*with_lod=*/false));
  ctx.set_output("BatchHidden", rows_of(input, size, /*with_lod=*/false));
  return Ok();
}

// Two operations for every weight and row.
double recurrence_flops(const InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const double rows = dims_known(input) && input.rank() > 0 && input.dims[0] > 0
                          ? static_cast<double>(input.dims[0])
                          : 1.0;
  return 2.0 * rows *
         (element_count(ctx.input("Weight")) +
          (ctx.has_input("ProjWeight") ? element_count(ctx.input("ProjWeight")) : 0.0));
}

OpDef& activation(OpDef& def, llvm::StringRef name, const char* fallback) {
  return def.attr(name, fallback, "activation function")
      .one_of({"sigmoid", "tanh", "relu", "identity"});
}

void add_lstm(OpRegistry& registry) {
  OpDef def("lstm");
  def.doc("long short-term memory; gates in the order candidate, input, forget, output")
      .input("Input", "projected sequences [rows, 4 * size]")
      .input("H0", "hidden state before the first time step [sequences, size]", Arity::kOptional)
      .input("C0", "cell state before the first time step [sequences, size]", Arity::kOptional)
      .input("Weight", "[size, 4 * size]")
      .input("Bias", "[1, 4 * size], with peepholes [1, 7 * size]", Arity::kOptional)
      .output("Hidden", "[rows, size]")
      .output("Cell", "[rows, size]")
      .intermediate("BatchGate", "gates, rows in order of time steps")
      .intermediate("BatchCellPreAct", "cells, rows in order of time steps")
      .attr("use_peepholes", true, "gates see the cell state")
      .attr("is_reverse", false, "last time step first");
  activation(def, "gate_activation", "sigmoid");
  activation(def, "cell_activation", "tanh");
  activation(def, "candidate_activation", "tanh");
  def.infer(infer_lstm)
      .flops(recurrence_flops)
      .grad({"lstm_grad",
             {"BatchCellPreAct", "BatchGate", "Bias", "C0", "Cell", "H0", "Hidden", "Hidden@GRAD",
              "Input", "Weight"},
             {"Bias@GRAD", "C0@GRAD", "H0@GRAD", "Input@GRAD", "Weight@GRAD"},
             {},
             true});
  registry.add(def);
}

void add_lstmp(OpRegistry& registry) {
  OpDef def("lstmp");
  def.doc("lstm whose output is projected before it is fed back")
      .input("Input", "projected sequences [rows, 4 * size]")
      .input("H0", "projected state before the first time step", Arity::kOptional)
      .input("C0", "cell state before the first time step", Arity::kOptional)
      .input("Weight", "[projection, 4 * size]")
      .input("ProjWeight", "[size, projection]")
      .input("Bias", "[1, 4 * size], with peepholes [1, 7 * size]")
      .output("Projection", "[rows, projection]")
      .output("Cell", "[rows, size]")
      .intermediate("BatchGate", "gates, rows in order of time steps")
      .intermediate("BatchCellPreAct", "cells, rows in order of time steps")
      .intermediate("BatchHidden", "hidden states, rows in order of time steps")
      .intermediate("OrderedP0", "old form: H0 in order of the lengths")
      .attr("use_peepholes", true, "gates see the cell state")
      .attr("is_reverse", false, "last time step first")
      .attr("cell_clip", 0.0F, "bound of the cell state; 0: none")
      .range(0)
      .attr("proj_clip", 0.0F, "bound of the projection; 0: none")
      .range(0);
  activation(def, "gate_activation", "sigmoid");
  activation(def, "cell_activation", "tanh");
  activation(def, "candidate_activation", "tanh");
  activation(def, "proj_activation", "tanh");
  def.infer(infer_lstmp)
      .flops(recurrence_flops)
      .grad({"lstmp_grad",
             {"BatchCellPreAct", "BatchGate", "BatchHidden", "Bias", "C0", "Cell", "H0", "Input",
              "ProjWeight", "Projection", "Projection@GRAD", "Weight"},
             {"Bias@GRAD", "C0@GRAD", "H0@GRAD", "Input@GRAD", "ProjWeight@GRAD", "Weight@GRAD"},
             {},
             true});
  registry.add(def);
}

void add_gru(OpRegistry& registry) {
  OpDef def("gru");
  def.doc("gated recurrent unit; gates in the order update, reset, candidate")
      .input("Input", "projected sequences [rows, 3 * size]")
      .input("H0", "hidden state before the first time step [sequences, size]", Arity::kOptional)
      .input("Weight", "[size, 3 * size]")
      .input("Bias", "[1, 3 * size]", Arity::kOptional)
      .intermediate("BatchGate", "gates, rows in order of time steps")
      .intermediate("BatchResetHiddenPrev", "reset states, rows in order of time steps")
      .intermediate("BatchHidden", "hidden states, rows in order of time steps")
      .output("Hidden", "[rows, size]");
  activation(def, "activation", "tanh");
  activation(def, "gate_activation", "sigmoid");
  def.attr("is_reverse", false, "last time step first")
      .attr("origin_mode", false, "the update gate is the weight of the old state, as in the paper")
      .infer(infer_gru)
      .flops(recurrence_flops)
      .grad({"gru_grad",
             {"BatchGate", "BatchHidden", "BatchResetHiddenPrev", "Bias", "H0", "Hidden",
              "Hidden@GRAD", "Input", "Weight"},
             {"Bias@GRAD", "H0@GRAD", "Input@GRAD", "Weight@GRAD"},
             {},
             true});
  registry.add(def);
}

}  // namespace
}  // namespace lod_rnn

void add_rnn_lod_rnn(OpRegistry& registry) {
  using namespace lod_rnn;
  add_lstm(registry);
  add_lstmp(registry);
  add_gru(registry);
}

}  // namespace millrace::ops
