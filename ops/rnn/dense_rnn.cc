#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Single time steps of recurrent layers, and the layer of 2.x over padded batches.
namespace millrace::ops {
namespace {

Status infer_gru_unit(InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const VarMeta& previous = ctx.input("HiddenPrev");
  if (!dims_known(input) || !dims_known(previous)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "HiddenPrev", 2, 2));
  const int64_t size = previous.dims[1];
  const int64_t wide = size < 0 ? -1 : 3 * size;
  if (!dims_agree(input.dims[1], wide)) {
    return ctx.error("'Input' has shape {}, expected {} columns, 3 for each of the {} cells",
                     dims_text(input.dims), wide, size);
  }
  const VarMeta& weight = ctx.input("Weight");
  if (dims_known(weight) && (weight.rank() != 2 || !dims_agree(weight.dims[0], size) ||
                             !dims_agree(weight.dims[1], wide))) {
    return ctx.error("'Weight' has shape {}, expected [{}, {}]", dims_text(weight.dims), size,
                     wide);
  }
  const int64_t rows = input.dims[0] < 0 ? previous.dims[0] : input.dims[0];
  ctx.set_output("Gate", input.dtype, {rows, wide});
  ctx.set_output("ResetHiddenPrev", input.dtype, {rows, size});
  ctx.set_output("Hidden", input.dtype, {rows, size});
  return Ok();
}

Status infer_lstm_unit(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& previous = ctx.input("C_prev");
  if (!dims_known(previous)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "C_prev", 2, 2));
  const int64_t wide = previous.dims[1] < 0 ? -1 : 4 * previous.dims[1];
  if (dims_known(x) && (x.rank() != 2 || !dims_agree(x.dims[1], wide))) {
    return ctx.error("'X' has shape {}, expected {} columns, 4 for each of the {} cells",
                     dims_text(x.dims), wide, previous.dims[1]);
  }
  ctx.set_output("C", previous);
  ctx.set_output("H", previous);
  return Ok();
}

Status infer_rnn(InferContext& ctx) {
  copy_each_without_offsets(ctx, "PreState", "State");
  const VarMeta& input = ctx.input("Input");
  if (!dims_known(input)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 3, 3));
  const VarMeta& state = ctx.input("PreState");
  const int64_t directions = ctx.attr<bool>("is_bidirec") ? 2 : 1;
  const auto layers = static_cast<int64_t>(ctx.attr<int32_t>("num_layers"));
  const size_t states = ctx.attr<std::string>("mode") == "LSTM" ? 2 : 1;
  if (ctx.input_count("PreState") != states) {
    return ctx.error("'PreState' has {} vars, expected {} for attribute 'mode' {}",
                     ctx.input_count("PreState"), states, ctx.attr<std::string>("mode"));
  }
  if (dims_known(state)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "PreState", 3, 3));
    if (!dims_agree(state.dims[0], directions * layers)) {
      return ctx.error("'PreState' has shape {}, expected {} rows, layers times directions",
                       dims_text(state.dims), directions * layers);
    }
  }
  const auto size = static_cast<int64_t>(ctx.attr<int32_t>("hidden_size"));
  ctx.set_output("Out", input.dtype, {input.dims[0], input.dims[1], directions * size});
  return Ok();
}

Status infer_cudnn_lstm(InferContext& ctx) {
  for (const char* const slot : {"LastH", "last_h"})
    ctx.set_output(slot, without_offsets(ctx.input("InitH")));
  for (const char* const slot : {"LastC", "last_c"})
    ctx.set_output(slot, without_offsets(ctx.input("InitC")));
  if (ctx.has_input("W") == ctx.has_input("WeightList"))
    return ctx.error("exactly one of 'W' and 'WeightList' must be given");
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 3, 3));
  const int64_t directions = ctx.attr<bool>("is_bidirec") ? 2 : 1;
  const auto layers = static_cast<int64_t>(ctx.attr<int32_t>("num_layers"));
  for (const char* const slot : {"InitH", "InitC"}) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, slot, 3, 3));
    const VarMeta& state = ctx.input(slot);
    if (dims_known(state) && !dims_agree(state.dims[0], directions * layers)) {
      return ctx.error("'{}' has shape {}, expected {} rows, layers times directions", slot,
                       dims_text(state.dims), directions * layers);
    }
  }
  const VarMeta& input = ctx.input("Input");
  if (!dims_known(input)) return Ok();
  const auto size = static_cast<int64_t>(ctx.attr<int32_t>("hidden_size"));
  ctx.set_output("Out", input.dtype, {input.dims[0], input.dims[1], directions * size});
  return Ok();
}

double rnn_flops(const InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  double rows = 1;
  if (dims_known(input) && input.rank() == 3) {
    for (size_t i = 0; i < 2; ++i)
      rows *= input.dims[i] > 0 ? static_cast<double>(input.dims[i]) : 1.0;
  }
  double weights = 0;
  for (size_t i = 0; i < ctx.input_count("WeightList"); ++i)
    weights += element_count(ctx.input("WeightList", i));
  if (ctx.def().find_input("W") != nullptr && ctx.has_input("W"))
    weights += element_count(ctx.input("W"));
  return 2.0 * rows * weights;
}

}  // namespace

void add_rnn_dense_rnn(OpRegistry& registry) {
  registry.add(
      OpDef("gru_unit")
          .doc("one time step of gru")
          .input("Input", "projected time step [rows, 3 * size]")
          .input("HiddenPrev", "[rows, size]")
          .input("Weight", "[size, 3 * size]")
          .input("Bias", "[1, 3 * size]", Arity::kOptional)
          .intermediate("Gate", "[rows, 3 * size]")
          .intermediate("ResetHiddenPrev", "[rows, size]")
          .output("Hidden", "[rows, size]")
          .attr("activation", 2, "0 identity, 1 sigmoid, 2 tanh, 3 relu")
          .range(0, 3)
          .attr("gate_activation", 1, "0 identity, 1 sigmoid, 2 tanh, 3 relu")
          .range(0, 3)
          .attr("origin_mode", false, "the update gate is the weight of the old state")
          .infer(infer_gru_unit)
          .grad(without_offsets(
              {"gru_unit_grad",
               {"Bias", "Gate", "Hidden@GRAD", "HiddenPrev", "Input", "ResetHiddenPrev", "Weight"},
               {"Bias@GRAD", "HiddenPrev@GRAD", "Input@GRAD", "Weight@GRAD"}})));
  registry.add(
      OpDef("lstm_unit")
          .doc("one time step of lstm; gates in the order input, forget, output, candidate")
          .input("X", "projected time step [rows, 4 * size]")
          .input("C_prev", "cell state before [rows, size]")
          .output("C", "cell state after [rows, size]")
          .output("H", "hidden state after [rows, size]")
          .attr("forget_bias", 0.0F, "added to the forget gate")
          .infer(infer_lstm_unit)
          .grad({"lstm_unit_grad",
                 {"C", "C@GRAD", "C_prev", "H@GRAD", "X"},
                 {"C_prev@GRAD", "X@GRAD"},
                 {}}));
  registry.add(
      OpDef("rnn")
          .doc("recurrent layers over a padded batch, time first")
          .input("Input", "[length, batch, width]")
          .input("PreState", "first states [layers * directions, batch, size]", Arity::kMany)
          .input("WeightList", "weights of all layers, then biases", Arity::kMany)
          .input("SequenceLength", "length of each row", Arity::kOptional)
          .intermediate("DropoutState", "state of the random generator")
          .intermediate("Reserve", "values for the gradient")
          .output("Out", "[length, batch, directions * size]")
          .output("State", "last states", Arity::kMany)
          .attr("dropout_prob", 0.0F, "dropout between layers")
          .range(0, 1)
          .attr("is_bidirec", false, "both directions")
          .attr("input_size", 10, "width of Input")
          .range(1)
          .attr("hidden_size", 100, "number of cells")
          .range(1)
          .attr("num_layers", 1, "number of layers")
          .range(1)
          .attr("mode", "RNN_TANH", "kind of cell")
          .one_of({"LSTM", "GRU", "RNN_TANH", "RNN_RELU"})
          .attr("seed", 0, "0: a new seed in every run")
          .infer(infer_rnn)
          .flops(rnn_flops)
          .grad({"rnn_grad",
                 {"DropoutState", "Input", "Out", "Out@GRAD", "PreState", "Reserve",
                  "SequenceLength", "State@GRAD", "WeightList"},
                 {"Input@GRAD", "PreState@GRAD", "WeightList@GRAD"},
                 {}}));
  registry.add(OpDef("cudnn_lstm")
                   .doc("layers of long short-term memory over a padded batch, time first")
                   .input("Input", "[length, batch, width]")
                   .input("InitH", "first states [layers * directions, batch, size]")
                   .input("InitC", "first cell states, shape of InitH")
                   .input("W", "all weights in the order of WeightList", Arity::kOptional)
                   .input("WeightList", "weights of all layers, then biases", Arity::kAny)
                   .input("SequenceLength", "length of each row", Arity::kOptional)
                   .input("Cache", "of 1.x; not read", Arity::kOptional, kAnyKind)
                   .intermediate("Reserve", "values for the gradient")
                   .intermediate("StateOut", "state of the random generator")
                   .output("Out", "[length, batch, directions * size]")
                   .output("LastH", "last states", Arity::kOptional)
                   .output("LastC", "last cell states", Arity::kOptional)
                   .output("last_h", "LastH in programs of 1.x", Arity::kOptional)
                   .output("last_c", "LastC in programs of 1.x", Arity::kOptional)
                   .attr("dropout_prob", 0.0F, "dropout between layers")
                   .range(0, 1)
                   .attr("is_bidirec", false, "both directions")
                   .attr("input_size", 10, "width of Input")
                   .attr("hidden_size", 100, "number of cells")
                   .range(1)
                   .attr("num_layers", 1, "number of layers")
                   .range(1)
                   .attr("is_test", false, "no dropout")
                   .attr("seed", 0, "0: a new seed in every run")
                   .attr("fix_seed", false, "of 1.x; if given as false, seed is ignored")
                   .attr("max_len", 20, "of 1.x; length of Input at most, no effect")
                   .attr("batch_size", 10, "of 1.x; rows of Input, no effect")
                   .infer(infer_cudnn_lstm)
                   .flops(rnn_flops)
                   .grad({"cudnn_lstm_grad",
                          {"InitC", "InitH", "Input", "LastC@GRAD", "LastH@GRAD", "Out", "Out@GRAD",
                           "Reserve", "SequenceLength", "StateOut", "W", "WeightList",
                           "last_c@GRAD", "last_h@GRAD"},
                          {"InitC@GRAD", "InitH@GRAD", "Input@GRAD", "W@GRAD", "WeightList@GRAD"},
                          {}}));
}

}  // namespace millrace::ops
