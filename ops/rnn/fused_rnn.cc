#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Recurrent layers fused with the projection of their input, written by optimizers of inference
// programs. They have no gradients.
namespace millrace::ops {
namespace fused_rnn {
namespace {

int64_t times(int64_t factor, int64_t size) {
  return size < 0 ? -1 : factor * size;
}

// Checks that the slot holds `count` elements, if both numbers are known.
Status check_count(const InferContext& ctx, llvm::StringRef slot, int64_t count) {
  const VarMeta& meta = ctx.input(slot);
  if (!ctx.has_input(slot) || !dims_known(meta)) return Ok();
  if (!dims_agree(dims_product(meta.dims), count)) {
    return ctx.error("'{}' has shape {}, expected {} elements", slot.str(), dims_text(meta.dims),
                     count);
  }
  return Ok();
}

// WeightH must be [size, gates * size]; the size is -1 if it is not known.
StatusOr<int64_t> size_of(const InferContext& ctx, int64_t gates) {
  const VarMeta& weight = ctx.input("WeightH");
  if (!dims_known(weight)) return int64_t{-1};
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "WeightH", 2, 2));
  const int64_t size = weight.dims[0];
  if (size >= 0 && !dims_agree(weight.dims[1], gates * size)) {
    return ctx.error("'WeightH' has shape {}, expected [size, {} * size]", dims_text(weight.dims),
                     gates);
  }
  return size;
}

// A matrix that projects rows of X, or has a row for each id.
Status check_projection(const InferContext& ctx, llvm::StringRef slot, int64_t rows,
                        int64_t columns) {
  const VarMeta& weight = ctx.input(slot);
  if (!dims_known(weight)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, slot, 2, 2));
  if (!dims_agree(weight.dims[0], rows) || !dims_agree(weight.dims[1], columns)) {
    return ctx.error("'{}' has shape {}, expected [{}, {}]", slot.str(), dims_text(weight.dims),
                     rows, columns);
  }
  return Ok();
}

VarMeta states_of(const VarMeta& input, DType dtype, int64_t size) {
  VarMeta out = tensor_with_lod_of(input, dtype, {-1, size});
  if (dims_known(input) && input.rank() > 0) out.dims[0] = input.dims[0];
  return out;
}

Status check_first_states(const InferContext& ctx) {
  if (ctx.has_input("H0") == ctx.has_input("C0")) return Ok();
  return ctx.error("only one of 'H0' and 'C0' is given, expected both or none");
}

Status infer_fusion_lstm(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  int64_t size = -1;
  MILLRACE_ASSIGN_OR_RETURN(size, size_of(ctx, 4));
  if (dims_known(x)) MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(
      check_projection(ctx, "WeightX", dims_known(x) ? x.dims[1] : -1, times(4, size)));
  MILLRACE_RETURN_IF_ERROR(check_first_states(ctx));
  const int64_t bias = ctx.attr<bool>("use_peepholes") ? 7 : 4;
  MILLRACE_RETURN_IF_ERROR(check_count(ctx, "Bias", times(bias, size)));
  ctx.set_output("Hidden", states_of(x, x.dtype, size));
  ctx.set_output("Cell", states_of(x, x.dtype, size));
  return Ok();
}

Status infer_embedding_lstm(InferContext& ctx) {
  const VarMeta& ids = ctx.input("Ids");
  int64_t size = -1;
  MILLRACE_ASSIGN_OR_RETURN(size, size_of(ctx, 4));
  if (dims_known(ids) && (ids.rank() != 2 || !dims_agree(ids.dims[1], 1)))
    return ctx.error("'Ids' has shape {}, expected [rows, 1]", dims_text(ids.dims));
  MILLRACE_RETURN_IF_ERROR(check_projection(ctx, "Embeddings", -1, times(4, size)));
  MILLRACE_RETURN_IF_ERROR(check_first_states(ctx));
  const int64_t bias = ctx.attr<bool>("use_peepholes") ? 7 : 4;
  MILLRACE_RETURN_IF_ERROR(check_count(ctx, "Bias", times(bias, size)));
  const DType dtype = ctx.input("Embeddings").dtype;
  ctx.set_output("Hidden", states_of(ids, dtype, size));
  ctx.set_output("Cell", states_of(ids, dtype, size));
  return Ok();
}

Status infer_fusion_gru(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  int64_t size = -1;
  MILLRACE_ASSIGN_OR_RETURN(size, size_of(ctx, 3));
  if (dims_known(x)) MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(
      check_projection(ctx, "WeightX", dims_known(x) ? x.dims[1] : -1, times(3, size)));
  MILLRACE_RETURN_IF_ERROR(check_count(ctx, "Bias", times(3, size)));
  ctx.set_output("Hidden", states_of(x, x.dtype, size));
  return Ok();
}

Status infer_attention_lstm(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& first = ctx.input("C0");
  int64_t width = -1;
  int64_t size = -1;
  if (dims_known(x)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
    width = x.dims[1];
  }
  if (dims_known(first)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "C0", 2, 2));
    size = first.dims[1];
  }
  const int64_t both = width < 0 || size < 0 ? -1 : width + size;
  MILLRACE_RETURN_IF_ERROR(check_projection(ctx, "AttentionWeight", both, 1));
  MILLRACE_RETURN_IF_ERROR(check_projection(ctx, "LSTMWeight", both, times(4, size)));
  MILLRACE_RETURN_IF_ERROR(check_count(ctx, "LSTMBias", times(4, size)));
  for (const char* const slot : {"AttentionBias", "AttentionScalar", "AttentionScalarBias"})
    MILLRACE_RETURN_IF_ERROR(check_count(ctx, slot, 1));
  if (ctx.has_input("AttentionScalarBias") && !ctx.has_input("AttentionScalar"))
    return ctx.error("'AttentionScalarBias' is given without 'AttentionScalar'");
  ctx.set_output("Hidden", states_of(x, x.dtype, size));
  ctx.set_output("Cell", states_of(x, x.dtype, size));
  return Ok();
}

// Two operations for every weight and row.
double fused_rnn_flops(const InferContext& ctx) {
  const bool ids = ctx.def().find_input("Ids") != nullptr;
  const VarMeta& x = ctx.input(ids ? "Ids" : "X");
  const double rows =
      dims_known(x) && x.rank() > 0 && x.dims[0] > 0 ? static_cast<double>(x.dims[0]) : 1.0;
  return 2.0 * rows *
         (element_count(ctx.input("WeightH")) + (ids ? 0.0 : element_count(ctx.input("WeightX"))));
}

OpDef& activation_of_fused(OpDef& def, llvm::StringRef name, const char* fallback) {
  return def.attr(name, fallback, "activation function")
      .one_of({"sigmoid", "tanh", "relu", "identity"});
}

// Outputs in which kernels of the original store intermediate results. No op reads them, so they
// are not written here.
OpDef& scratch_outputs(OpDef& def, std::initializer_list<const char*> names) {
  for (const char* const name : names) def.intermediate(name, "not written");
  return def;
}

OpDef& quantized_attrs(OpDef& def) {
  return def.attr("Scale_data", 1.0F, "no effect on floating point")
      .attr("Shift_data", 0.0F, "no effect on floating point")
      .attr("Scale_weights", std::vector<float>{1.0F}, "no effect on floating point")
      .attr("force_fp32_output", false, "no effect on floating point");
}

OpDef& order_attrs(OpDef& def) {
  return def.attr("is_reverse", false, "last time step first")
      .attr("use_seq", true, "selects one of two equivalent algorithms in the original; no effect");
}

void lstm_part(OpDef& def, OpRegistry& registry) {
  def.input("WeightH", "[size, 4 * size]; gates in the order candidate, input, forget, output")
      .input("Bias", "[1, 4 * size], with peepholes [1, 7 * size]")
      .input("H0", "hidden state before the first time step [sequences, size]", Arity::kOptional)
      .input("C0", "cell state before the first time step [sequences, size]", Arity::kOptional)
      .output("Hidden", "[rows, size]")
      .output("Cell", "[rows, size]");
  scratch_outputs(def, {"XX", "BatchedInput", "BatchedHidden", "BatchedCell", "ReorderedH0",
                        "ReorderedC0", "CheckedCell"});
  def.attr("use_peepholes", true, "gates see the cell state");
  order_attrs(def);
  activation_of_fused(def, "gate_activation", "sigmoid");
  activation_of_fused(def, "cell_activation", "tanh");
  activation_of_fused(def, "candidate_activation", "tanh");
  registry.add(def.flops(fused_rnn_flops));
}

void add_fusion_lstms(OpRegistry& registry) {
  OpDef plain("fusion_lstm");
  plain.doc("lstm of X times WeightX")
      .input("X", "sequences [rows, width]")
      .input("WeightX", "[width, 4 * size]")
      .infer(infer_fusion_lstm);
  lstm_part(quantized_attrs(plain), registry);
  OpDef embedding("fused_embedding_fc_lstm");
  embedding.doc("lstm of rows of a table that already contain the projection and its bias")
      .input("Ids", "rows of the table [rows, 1]")
      .input("Embeddings", "[table rows, 4 * size]")
      .infer(infer_embedding_lstm);
  lstm_part(embedding, registry);
}

void add_fusion_gru(OpRegistry& registry) {
  OpDef def("fusion_gru");
  def.doc("gru of X times WeightX")
      .input("X", "sequences [rows, width]")
      .input("H0", "hidden state before the first time step [sequences, size]", Arity::kOptional)
      .input("WeightX", "[width, 3 * size]")
      .input("WeightH", "[size, 3 * size]; gates in the order update, reset, candidate")
      .input("Bias", "[1, 3 * size]", Arity::kOptional)
      .output("Hidden", "[rows, size]");
  scratch_outputs(def, {"ReorderedH0", "XX", "BatchedInput", "BatchedOut"});
  activation_of_fused(def, "activation", "tanh");
  activation_of_fused(def, "gate_activation", "sigmoid");
  order_attrs(def);
  quantized_attrs(def);
  registry.add(def.attr("origin_mode", false, "the update gate is the weight of the old state")
                   .infer(infer_fusion_gru)
                   .flops(fused_rnn_flops));
}

void add_attention_lstm(OpRegistry& registry) {
  OpDef def("attention_lstm");
  def.doc("lstm whose input at each time step is a mean of all rows, weighted by the cell state")
      .input("X", "sequences [rows, width]")
      .input("C0", "cell state before the first time step [sequences, size]")
      .input("H0", "hidden state before the first time step [sequences, size]", Arity::kOptional)
      .input("AttentionWeight", "[width + size, 1]")
      .input("AttentionBias", "[1, 1]", Arity::kOptional)
      .input("AttentionScalar", "factor of the rectified scores [1, 1]", Arity::kOptional)
      .input("AttentionScalarBias", "[1, 1]", Arity::kOptional)
      .input("LSTMWeight", "[size + width, 4 * size]; gates forget, input, output, candidate")
      .input("LSTMBias", "[1, 4 * size]")
      .output("Hidden", "[rows, size]")
      .output("Cell", "[rows, size]");
  scratch_outputs(def, {"AttentionedX", "AttentionFCOut", "LSTMX", "LSTMOUT"});
  activation_of_fused(def, "gate_activation", "sigmoid");
  activation_of_fused(def, "cell_activation", "tanh");
  activation_of_fused(def, "candidate_activation", "tanh");
  registry.add(def.infer(infer_attention_lstm));
}

}  // namespace
}  // namespace fused_rnn

void add_rnn_fused_rnn(OpRegistry& registry) {
  using namespace fused_rnn;
  add_fusion_lstms(registry);
  add_fusion_gru(registry);
  add_attention_lstm(registry);
}

}  // namespace millrace::ops
