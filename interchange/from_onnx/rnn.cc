// Recurrent layers.

#include <algorithm>
#include <numeric>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

// What a node says, and its operands.
struct Layer {
  std::string x;        // [length, batch, width]
  std::string lengths;  // int64 [batch]; empty: all rows have the whole length
  int64_t directions = 1;
  int64_t hidden = 0;
  int64_t gates = 0;
  bool is_reverse = false;
  bool linear_before_reset = false;
  std::vector<std::string> activations;  // of one direction
};

// Activations of all directions are the same, and among those that the ops have.
Status read_activations(NodeContext& c, Layer& layer, std::vector<std::string> usual) {
  std::vector<std::string> stated = c.attr_strings("activations");
  layer.activations = usual;
  if (stated.empty()) return Ok();
  if (stated.size() != usual.size() * static_cast<size_t>(layer.directions))
    return c.refuse("another number of activations than the layer has");
  layer.activations.assign(stated.begin(),
                           stated.begin() + static_cast<std::ptrdiff_t>(usual.size()));
  for (size_t i = 0; i < stated.size(); ++i) {
    if (stated[i] != layer.activations[i % usual.size()])
      return c.refuse("directions with different activations");
    if (stated[i] != "Sigmoid" && stated[i] != "Tanh" && stated[i] != "Relu")
      return c.refuse("the activation " + stated[i]);
  }
  return Ok();
}

Status read_layer(NodeContext& c, Layer& layer) {
  layer.x = c.in(0);
  const std::string direction = c.attr_string("direction", "forward");
  layer.directions = direction == "bidirectional" ? 2 : 1;
  layer.is_reverse = direction == "reverse";
  layer.gates = c.type() == "LSTM" ? 4 : (c.type() == "GRU" ? 3 : 1);
  if (c.attr_int("layout", 0) != 0) return c.refuse("a layout with the batch first");
  if (c.has_attr("clip") || c.has_attr("activation_alpha") || c.has_attr("activation_beta"))
    return c.refuse("clip, activation_alpha or activation_beta");
  if (c.attr_int("input_forget", 0) != 0) return c.refuse("input_forget");
  layer.linear_before_reset = c.attr_bool("linear_before_reset", false);
  const std::string recurrent = c.in(2);
  layer.hidden = c.extent(recurrent, 2);
  if (c.rank(layer.x) != 3 || c.rank(c.in(1)) != 3 || c.rank(recurrent) != 3 || layer.hidden < 1 ||
      layer.hidden > (1 << 20) || c.attr_int("hidden_size", layer.hidden) != layer.hidden ||
      c.extent(c.in(1), 1) != layer.gates * layer.hidden ||
      c.extent(recurrent, 0) != layer.directions)
    return c.refuse("weights that do not fit the size of the layer, or of unknown size");
  if (c.has(4)) layer.lengths = c.cast(c.in(4), DType::kInt64);
  if (c.type() == "LSTM") return read_activations(c, layer, {"Sigmoid", "Tanh", "Tanh"});
  if (c.type() == "GRU") return read_activations(c, layer, {"Sigmoid", "Tanh"});
  return read_activations(c, layer, {"Tanh"});
}

// Rows of gates in another order; the first dim of a value is gates * hidden.
std::string in_order(NodeContext& c, const Layer& layer, const std::string& value,
                     const std::vector<int64_t>& order) {
  std::vector<int64_t> rows;
  for (const int64_t gate : order)
    for (int64_t i = 0; i < layer.hidden; ++i) rows.push_back(gate * layer.hidden + i);
  return c.op("gather", {{"X", {value}}, {"Index", {c.longs(rows)}}}, {int_attr("axis", 0)});
}

std::string zero_vector(NodeContext& c, int64_t count, DType dtype) {
  return c.numbers(std::vector<double>(static_cast<size_t>(count), 0.0), dtype, {count});
}

// Zeros, or another number, with the batch size of a value.
std::string like_batch(NodeContext& c, const std::string& value, std::vector<int64_t> shape,
                       int64_t axis, DType dtype, double number) {
  return c.op("fill_constant_batch_size_like", {{"Input", {value}}},
              {ints_attr("shape", std::move(shape)), int_attr("input_dim_idx", axis),
               int_attr("output_dim_idx", axis), dtype_attr("dtype", dtype),
               float_attr("value", static_cast<float>(number))});
}

std::string flipped(NodeContext& c, const std::string& value) {
  return c.op("flip", {{"X", {value}}}, {ints_attr("axis", {0})});
}

// True if the op `rnn` computes the layer.
bool is_dense(const NodeContext& c, const Layer& layer) {
  if (layer.is_reverse && !layer.lengths.empty()) return false;
  if (c.type() == "RNN") return layer.activations[0] != "Sigmoid";
  if (c.type() == "GRU")
    return layer.linear_before_reset &&
           layer.activations == std::vector<std::string>{"Sigmoid", "Tanh"};
  return !c.has(7) && layer.activations == std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
}

// Weights and biases in the order of the op. Gates of ONNX: input, output, forget, candidate, or
// update, reset, candidate; of the op: input, forget, candidate, output, or reset, update,
// candidate.
std::vector<std::string> dense_weights(NodeContext& c, const Layer& layer) {
  const std::vector<int64_t> order = layer.gates == 4   ? std::vector<int64_t>{0, 2, 3, 1}
                                     : layer.gates == 3 ? std::vector<int64_t>{1, 0, 2}
                                                        : std::vector<int64_t>{0};
  const int64_t rows = layer.gates * layer.hidden;
  std::vector<std::string> all;
  for (int64_t d = 0; d < layer.directions; ++d)
    for (const size_t index : {1, 2})
      all.push_back(in_order(c, layer, c.slice(c.in(index), 0, d, d + 1, /*drop=*/true), order));
  for (int64_t d = 0; d < layer.directions; ++d)
    for (const int64_t part : {0, 1}) {
      if (!c.has(3)) {
        all.push_back(zero_vector(c, rows, c.dtype(layer.x)));
        continue;
      }
      const std::string own = c.slice(c.in(3), 0, d, d + 1, /*drop=*/true);
      all.push_back(in_order(c, layer, c.slice(own, 0, part * rows, (part + 1) * rows), order));
    }
  return all;
}

Status dense_layer(NodeContext& c, const Layer& layer) {
  const bool has_cell = c.type() == "LSTM";
  const std::string x = layer.is_reverse ? flipped(c, layer.x) : layer.x;
  std::vector<std::string> states;
  for (const size_t index : {5, 6}) {
    if (index == 6 && !has_cell) break;
    states.push_back(c.has(index) ? c.in(index)
                                  : like_batch(c, layer.x, {layer.directions, -1, layer.hidden}, 1,
                                               c.dtype(layer.x), 0));
  }
  std::vector<SlotVars> inputs = {
      {"Input", {x}}, {"PreState", states}, {"WeightList", dense_weights(c, layer)}};
  if (!layer.lengths.empty())
    inputs.push_back({"SequenceLength", {c.cast(layer.lengths, DType::kInt32)}});
  const char* const mode = has_cell                         ? "LSTM"
                           : c.type() == "GRU"              ? "GRU"
                           : layer.activations[0] == "Relu" ? "RNN_RELU"
                                                            : "RNN_TANH";
  const std::vector<std::string> outs =
      c.ops("rnn", inputs,
            {bool_attr("is_bidirec", layer.directions == 2), int_attr("num_layers", 1),
             int_attr("input_size", std::max<int64_t>(1, c.extent(layer.x, 2))),
             int_attr("hidden_size", layer.hidden), string_attr("mode", mode),
             float_attr("dropout_prob", 0)},
            {{"Out", 1}, {"State", states.size()}});
  const std::string y = layer.is_reverse ? flipped(c, outs[0]) : outs[0];
  c.set(0, c.transpose(c.reshape(y, {0, 0, layer.directions, layer.hidden}), {0, 2, 1, 3}));
  c.set(1, outs[1]);
  if (has_cell) c.set(2, outs[2]);
  return Ok();
}

// ---- layers over sequences, for what the op `rnn` does not have

const char* op_name_of(const std::string& activation) {
  return activation == "Sigmoid" ? "sigmoid" : (activation == "Tanh" ? "tanh" : "relu");
}

// The rows of all sequences, one after the other.
StatusOr<std::string> unpadded(NodeContext& c, const Layer& layer) {
  const std::string batch_first = c.transpose(layer.x, {1, 0, 2});
  std::string lengths = layer.lengths;
  if (lengths.empty()) {
    const int64_t length = c.extent(layer.x, 0);
    if (length < 1) return c.refuse("an unknown length without sequence_lens");
    lengths = like_batch(c, batch_first, {-1}, 0, DType::kInt64, static_cast<double>(length));
  }
  return c.op("sequence_unpad", {{"X", {batch_first}}, {"Length", {lengths}}});
}

// Sequences as [length, 1, batch, hidden], zeros after their end.
std::string padded_again(NodeContext& c, const Layer& layer, const std::string& rows) {
  const int64_t length = c.extent(layer.x, 0);
  const std::string zero = c.numbers({0}, c.dtype(layer.x), {1});
  std::string out =
      c.ops("sequence_pad", {{"X", {rows}}, {"PadValue", {zero}}},
            {int_attr("padded_length", length < 1 ? -1 : length)}, {{"Out", 1}, {"Length", 1}})[0];
  if (length < 1) {
    // The longest sequence may be shorter than the input: zeros follow, and the rest is cut off.
    const std::string column =
        c.op("fill_any_like", {{"X", {c.slice(c.transpose(layer.x, {1, 0, 2}), 2, 0, 1)}}},
             {float_attr("value", 0), int_attr("dtype", -1)});
    const std::string zeros =
        c.op("expand_v2", {{"X", {column}}}, {ints_attr("shape", {-1, -1, layer.hidden})});
    const std::string longer = c.op("concat", {{"X", {out, zeros}}}, {int_attr("axis", 1)});
    const std::string end = c.slice(c.shape(layer.x), 0, 0, 1);
    out = c.op("slice",
               {{"Input", {longer}}, {"StartsTensor", {c.longs({0})}}, {"EndsTensor", {end}}},
               {ints_attr("axes", {1}), ints_attr("infer_flags", {-1})});
  }
  return c.unsqueeze(c.transpose(out, {1, 0, 2}), {1});
}

// An empty sequence has no last row: its final state would be the initial one in ONNX, zero here.
Status check_final_state(NodeContext& c, const Layer& layer) {
  const bool is_read = c.has_output(1) || c.has_output(2);
  if (is_read && !layer.lengths.empty() && (c.has(5) || c.has(6)))
    return c.refuse("a final state with sequence_lens and an initial state");
  return Ok();
}

std::string final_state(NodeContext& c, const Layer& layer, const std::string& rows) {
  const std::string last = c.op("sequence_pool", {{"X", {rows}}},
                                {string_attr("pooltype", layer.is_reverse ? "FIRST" : "LAST")});
  return c.unsqueeze(last, {0});
}

// Both biases of a layer, added: [gates * hidden].
std::string joined_bias(NodeContext& c, const Layer& layer) {
  const int64_t rows = layer.gates * layer.hidden;
  if (!c.has(3)) return zero_vector(c, rows, c.dtype(layer.x));
  const std::string both = c.squeeze(c.in(3), {0});
  return c.binary("elementwise_add", c.slice(both, 0, 0, rows), c.slice(both, 0, rows, 2 * rows));
}

std::string projected(NodeContext& c, const std::string& rows, const std::string& weight) {
  return c.op("mul", {{"X", {rows}}, {"Y", {c.transpose(weight, {1, 0})}}},
              {int_attr("x_num_col_dims", 1), int_attr("y_num_col_dims", 1)});
}

// Gates of the op: candidate, input, forget, output; of ONNX: input, output, forget, candidate.
Status lstm_sequences(NodeContext& c, const Layer& layer, const std::string& rows) {
  const std::vector<int64_t> order = {3, 0, 2, 1};
  const int64_t h = layer.hidden;
  std::string bias = in_order(c, layer, joined_bias(c, layer), order);
  if (c.has(7)) {
    // After the biases: input, forget, output; ONNX has input, output, forget.
    const std::string peepholes = in_order(c, layer, c.squeeze(c.in(7), {0}), {0, 2, 1});
    bias = c.op("concat", {{"X", {bias, peepholes}}}, {int_attr("axis", 0)});
  }
  const std::string weight =
      c.transpose(in_order(c, layer, c.squeeze(c.in(2), {0}), order), {1, 0});
  const std::string input = projected(c, rows, in_order(c, layer, c.squeeze(c.in(1), {0}), order));
  std::vector<SlotVars> inputs = {{"Input", {input}},
                                  {"Weight", {weight}},
                                  {"Bias", {c.reshape(bias, {1, (c.has(7) ? 7 : 4) * h})}}};
  if (c.has(5) != c.has(6)) return c.refuse("one initial state without the other");
  if (c.has(5)) inputs.push_back({"H0", {c.squeeze(c.in(5), {0})}});
  if (c.has(6)) inputs.push_back({"C0", {c.squeeze(c.in(6), {0})}});
  const std::vector<std::string> outs =
      c.ops("lstm", inputs,
            {bool_attr("use_peepholes", c.has(7)), bool_attr("is_reverse", layer.is_reverse),
             string_attr("gate_activation", op_name_of(layer.activations[0])),
             string_attr("candidate_activation", op_name_of(layer.activations[1])),
             string_attr("cell_activation", op_name_of(layer.activations[2]))},
            {{"Hidden", 1}, {"Cell", 1}});
  c.set(0, padded_again(c, layer, outs[0]));
  if (c.has_output(1)) c.set(1, final_state(c, layer, outs[0]));
  if (c.has_output(2)) c.set(2, final_state(c, layer, outs[1]));
  return Ok();
}

// The gates have the same order. The weights are two matrices one after the other.
Status gru_sequences(NodeContext& c, const Layer& layer, const std::string& rows) {
  if (layer.linear_before_reset)
    return c.refuse("linear_before_reset with other activations, or backwards with lengths");
  const int64_t h = layer.hidden;
  const std::string recurrent = c.squeeze(c.in(2), {0});
  const auto flat = [&](int64_t begin, int64_t end) {
    return c.reshape(c.transpose(c.slice(recurrent, 0, begin, end), {1, 0}), {-1});
  };
  const std::string weight = c.reshape(
      c.op("concat", {{"X", {flat(0, 2 * h), flat(2 * h, 3 * h)}}}, {int_attr("axis", 0)}),
      {h, 3 * h});
  std::vector<SlotVars> inputs = {{"Input", {projected(c, rows, c.squeeze(c.in(1), {0}))}},
                                  {"Weight", {weight}},
                                  {"Bias", {c.reshape(joined_bias(c, layer), {1, 3 * h})}}};
  if (c.has(5)) inputs.push_back({"H0", {c.squeeze(c.in(5), {0})}});
  const std::string out =
      c.op("gru", inputs,
           {bool_attr("is_reverse", layer.is_reverse), bool_attr("origin_mode", true),
            string_attr("gate_activation", op_name_of(layer.activations[0])),
            string_attr("activation", op_name_of(layer.activations[1]))},
           "Hidden");
  c.set(0, padded_again(c, layer, out));
  if (c.has_output(1)) c.set(1, final_state(c, layer, out));
  return Ok();
}

Status recurrent_node(NodeContext& c) {
  Layer layer;
  MILLRACE_RETURN_IF_ERROR(read_layer(c, layer));
  if (is_dense(c, layer)) return dense_layer(c, layer);
  if (layer.directions != 1 || c.type() == "RNN")
    return c.refuse("both directions, or this activation, with these attributes");
  MILLRACE_RETURN_IF_ERROR(check_final_state(c, layer));
  MILLRACE_ASSIGN_OR_RETURN(const std::string rows, unpadded(c, layer));
  return c.type() == "LSTM" ? lstm_sequences(c, layer, rows) : gru_sequences(c, layer, rows);
}

}  // namespace

void add_rnn_nodes(NodeTable& table) {
  table["LSTM"] = {recurrent_node, 3, 8};
  table["GRU"] = table["RNN"] = {recurrent_node, 3, 6};
}

}  // namespace millrace::interchange
