// Recurrent layers over sequences with LoD.

#include "interchange/onnx/sequences.h"

namespace millrace::interchange {
namespace {

// Activations that both formats have.
StatusOr<std::string> activation_name(OpContext& c, llvm::StringRef attr) {
  const auto name = c.attr<std::string>(attr);
  if (name == "sigmoid") return std::string("Sigmoid");
  if (name == "tanh") return std::string("Tanh");
  if (name == "relu") return std::string("Relu");
  return c.refuse("the activation " + name);
}

// Columns [begin, end) * width of a matrix, transposed: the weights of gates.
std::string columns(OpContext& c, const std::string& matrix, int64_t gate, int64_t width) {
  return c.transpose(c.slice(matrix, 1, gate * width, (gate + 1) * width), {1, 0});
}

std::string join(OpContext& c, const std::vector<std::string>& parts, int64_t axis) {
  return c.node("Concat", parts, {{"axis", axis}});
}

// The input already contains the products with the weights of the input; these "weights" only
// bring the gates into the order of ONNX, with a sign for each.
std::string pass_gates(OpContext& c, const std::vector<int64_t>& order, int64_t width,
                       const std::vector<double>& signs, DType dtype) {
  const auto gates = static_cast<int64_t>(order.size());
  const int64_t all = gates * width;
  std::vector<double> weights(static_cast<size_t>(all * all), 0.0);
  for (int64_t g = 0; g < gates; ++g)
    for (int64_t i = 0; i < width; ++i)
      weights[static_cast<size_t>((g * width + i) * all + order[static_cast<size_t>(g)] * width +
                                  i)] = signs[static_cast<size_t>(g)];
  return c.graph().numbers(weights, dtype, {1, all, all});
}

// Runs the node over padded sequences; \returns its hidden states as rows.
std::string run_padded(OpContext& c, const std::string& type, const Sequences& s,
                       const std::string& x, std::vector<std::string> weights,
                       const std::vector<std::string>& states, int64_t width,
                       std::vector<NodeAttr> attrs) {
  const std::string padded = c.node("Gather", {x, padded_rows(c, s, x)});
  std::vector<std::string> inputs = {padded};
  inputs.insert(inputs.end(), weights.begin(), weights.begin() + 3);
  inputs.push_back(c.cast(s.lengths, DType::kInt32));
  inputs.insert(inputs.end(), states.begin(), states.end());
  if (weights.size() > 3) inputs.push_back(weights[3]);
  attrs.push_back({"hidden_size", width});
  attrs.push_back({"direction", std::string(c.attr<bool>("is_reverse") ? "reverse" : "forward")});
  const std::string hidden = c.node(type, inputs, std::move(attrs));
  return c.node("Gather", {c.reshape(hidden, {-1, width}), flat_positions(c, s, x)});
}

std::string initial_state(OpContext& c, llvm::StringRef slot) {
  return c.has(slot) ? c.unsqueeze(c.in(slot), {0}) : "";
}

// Gates of the original: candidate, input, forget, output; of ONNX: input, output, forget,
// candidate.
Status lstm(OpContext& c) {
  const std::string x = c.in("Input");
  const std::string weight = c.in("Weight");
  const int64_t width = c.dims("Weight")[0];
  if (width < 0) return c.refuse("a weight of unknown size");
  const DType dtype = c.dtype("Input");
  const std::vector<int64_t> order = {1, 3, 2, 0};
  std::vector<std::string> recurrent;
  std::vector<std::string> biases;
  const std::string bias = c.reshape(c.in("Bias"), {-1});
  for (const int64_t gate : order) {
    recurrent.push_back(columns(c, weight, gate, width));
    biases.push_back(c.slice(bias, 0, gate * width, (gate + 1) * width));
  }
  const std::vector<double> zeros(static_cast<size_t>(4 * width), 0.0);
  biases.push_back(c.graph().numbers(zeros, dtype, {4 * width}));
  std::vector<std::string> weights = {pass_gates(c, order, width, {1, 1, 1, 1}, dtype),
                                      c.unsqueeze(join(c, recurrent, 0), {0}),
                                      c.unsqueeze(join(c, biases, 0), {0})};
  std::vector<std::string> states = {initial_state(c, "H0"), initial_state(c, "C0")};
  if (c.attr<bool>("use_peepholes")) {
    // After the biases: of the input, forget and output gates. ONNX: input, output, forget.
    std::vector<std::string> peepholes;
    for (const int64_t gate : {4, 6, 5})
      peepholes.push_back(c.slice(bias, 0, gate * width, (gate + 1) * width));
    weights.push_back(c.unsqueeze(join(c, peepholes, 0), {0}));
  }
  std::vector<std::string> names;
  for (const char* attr : {"gate_activation", "candidate_activation", "cell_activation"}) {
    MILLRACE_ASSIGN_OR_RETURN(names.emplace_back(), activation_name(c, attr));
  }
  c.set("Hidden", run_padded(c, "LSTM", read_sequences(c, "Input"), x, std::move(weights), states,
                             width, {{"activations", names}}));
  return Ok();
}

// Gates of the original: update, reset, candidate, which are those of ONNX. Without origin_mode the
// update gate weighs the candidate instead of the old state: its complement is the sigmoid of the
// negative argument.
Status gru(OpContext& c) {
  const std::string x = c.in("Input");
  const int64_t width = c.dims("Weight")[0];
  if (width < 0) return c.refuse("a weight of unknown size");
  const DType dtype = c.dtype("Input");
  const bool origin = c.attr<bool>("origin_mode");
  MILLRACE_ASSIGN_OR_RETURN(const std::string gate, activation_name(c, "gate_activation"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string candidate, activation_name(c, "activation"));
  if (!origin && gate != "Sigmoid")
    return c.refuse("gru without origin_mode and with a gate_activation other than sigmoid");
  // The weights are two matrices one after the other: [width, 2 width] and [width, width].
  const std::string flat = c.reshape(c.in("Weight"), {-1});
  const std::string gates = c.reshape(c.slice(flat, 0, 0, 2 * width * width), {width, 2 * width});
  const std::string rest =
      c.reshape(c.slice(flat, 0, 2 * width * width, 3 * width * width), {width, width});
  const auto signed_update = [&](const std::string& value) {
    return origin ? value : c.node("Neg", {value});
  };
  const std::string recurrent = join(c,
                                     {signed_update(columns(c, gates, 0, width)),
                                      columns(c, gates, 1, width), c.transpose(rest, {1, 0})},
                                     0);
  const std::vector<double> zeros(static_cast<size_t>(3 * width), 0.0);
  const std::string no_bias = c.graph().numbers(zeros, dtype, {3 * width});
  std::string bias = no_bias;
  if (c.has("Bias")) {
    const std::string own = c.reshape(c.in("Bias"), {-1});
    bias =
        join(c, {signed_update(c.slice(own, 0, 0, width)), c.slice(own, 0, width, 3 * width)}, 0);
  }
  const std::vector<std::string> weights = {
      pass_gates(c, {0, 1, 2}, width, {origin ? 1.0 : -1.0, 1, 1}, dtype),
      c.unsqueeze(recurrent, {0}), c.unsqueeze(join(c, {bias, no_bias}, 0), {0})};
  c.ignore({"is_test"});
  c.set("Hidden",
        run_padded(c, "GRU", read_sequences(c, "Input"), x, weights, {initial_state(c, "H0")},
                   width, {{"activations", std::vector<std::string>{gate, candidate}}}));
  return Ok();
}

}  // namespace

void add_rnn_ops(ConverterTable& table) {
  table["lstm"] = lstm;
  table["gru"] = gru;
}

}  // namespace millrace::interchange
