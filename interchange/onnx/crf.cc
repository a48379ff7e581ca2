// crf_decoding: the best path of tags for each sequence, by two loops over the steps.

#include "interchange/onnx/sequences.h"

namespace millrace::interchange {
namespace {

// The body of a Scan. Values of the outer graph may be used in it.
struct ScanBody {
  explicit ScanBody(OpContext& c, const std::string& name)
      : prefix(c.graph().unique(name)), builder(graph, c.opset(), prefix + "_") {
    graph.set_name(prefix);
  }
  std::string input(const std::string& name) {
    graph.add_input()->set_name(prefix + "_" + name);
    return prefix + "_" + name;
  }
  void output(const std::string& value) { graph.add_output()->set_name(value); }
  std::string node(const std::string& type, const std::vector<std::string>& inputs,
                   std::vector<NodeAttr> attrs = {}) {
    return builder.add_node(type, inputs, std::move(attrs), 1)[0];
  }

  ::onnx::GraphProto graph;
  std::string prefix;
  GraphBuilder builder;
};

// From the scores of the best paths that end in each tag (f32 [n, k]) to those one step later, and
// for each tag the tag before it (int64 [n, k]). Past the end of a sequence both stay.
::onnx::GraphProto forward_step(OpContext& c, const std::string& between,
                                const std::string& same_tag) {
  ScanBody body(c, "viterbi");
  const std::string alpha = body.input("alpha");
  const std::string emission = body.input("emission");
  const std::string is_inside = body.input("is_inside");  // bool [n, 1]
  const std::string paths =
      body.node("Add", {body.node("Unsqueeze", {alpha, c.graph().ints({2})}), between});
  const std::string from =
      body.node("ArgMax", {paths}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  const std::string at = body.node("Unsqueeze", {from, c.graph().ints({1})});
  const std::string best = body.node(
      "Squeeze",
      {body.node("GatherElements", {paths, at}, {{"axis", int64_t{1}}}), c.graph().ints({1})});
  const std::string next = body.node("Add", {best, emission});
  body.output(body.node("Where", {is_inside, next, alpha}));
  body.output(body.node("Where", {is_inside, from, same_tag}));
  return body.graph;
}

// From the tags of a step (int64 [n, 1]) to those of the step before.
::onnx::GraphProto backward_step(OpContext& c) {
  ScanBody body(c, "backtrack");
  const std::string tag = body.input("tag");
  const std::string from = body.input("from");
  const std::string before = body.node("GatherElements", {from, tag}, {{"axis", int64_t{1}}});
  body.output(before);
  body.output(body.node("Identity", {before}));
  return body.graph;
}

Status crf_decoding(OpContext& c) {
  const std::string x = c.in("Emission");
  const std::string transition = c.in("Transition");
  const Sequences s = read_sequences(c, "Emission");
  const std::string padded = c.node("Gather", {x, padded_rows(c, s, x)});  // [t, n, k]
  // Row 0 are scores of the first tag, row 1 of the last, the others those of pairs.
  const std::string first = c.slice(transition, 0, 0, 1);
  const std::string last = c.slice(transition, 0, 1, 2);
  const std::string between = c.unsqueeze(c.slice(transition, 0, 2, INT64_MAX), {0});
  const std::string start = c.node("Add", {c.squeeze(c.slice(padded, 0, 0, 1), {0}), first});
  // Steps 1 to t: step t is past the end of all sequences, so that there is at least one.
  const std::string steps = c.node("Add", {s.steps, c.graph().ints({1}, {})});
  const std::string bound = c.node("Sub", {s.longest, c.graph().ints({1})});
  const std::string emissions = c.node("Gather", {padded, c.node("Min", {steps, bound})});
  const std::string is_inside =
      c.unsqueeze(c.node("Less", {c.unsqueeze(steps, {1}), c.unsqueeze(s.lengths, {0})}), {2});
  const std::string tags = c.node(
      "Range",
      {c.scalar(0, DType::kInt64), c.reshape(c.extent(x, 1), {}), c.scalar(1, DType::kInt64)});
  const std::vector<std::string> forward = c.nodes(
      "Scan", {start, emissions, is_inside},
      {{"body", forward_step(c, between, c.unsqueeze(tags, {0}))}, {"num_scan_inputs", int64_t{2}}},
      2);
  const std::string ending = c.node("Add", {forward[0], last});
  const std::string final_tag = c.node("ArgMax", {ending}, {{"axis", int64_t{1}}});
  const std::vector<std::string> backward =
      c.nodes("Scan", {final_tag, forward[1]},
              {{"body", backward_step(c)},
               {"num_scan_inputs", int64_t{1}},
               {"scan_input_directions", std::vector<int64_t>{1}},
               {"scan_output_directions", std::vector<int64_t>{1}}},
              2);
  const std::string path =
      c.node("Gather", {c.reshape(backward[1], {-1}), flat_positions(c, s, x)});
  c.set("ViterbiPath", c.unsqueeze(path, {1}));
  return Ok();
}

}  // namespace

void add_crf_ops(ConverterTable& table) {
  table["crf_decoding"] = crf_decoding;
}

}  // namespace millrace::interchange
