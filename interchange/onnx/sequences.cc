// Ops of sequences that LoD describes.

#include "interchange/onnx/sequences.h"

#include <limits>

namespace millrace::interchange {

Sequences read_sequences(OpContext& c, llvm::StringRef slot) {
  Sequences s;
  s.offsets = c.offsets(slot);
  s.starts = c.slice(s.offsets, 0, 0, -1);
  const std::string ends = c.slice(s.offsets, 0, 1, INT64_MAX);
  s.lengths = c.node("Sub", {ends, s.starts});
  const std::string one = c.graph().ints({1});
  s.longest = c.node("Max", {c.reduce("ReduceMax", s.lengths, {0}, true), one});
  s.steps = c.node(
      "Range", {c.scalar(0, DType::kInt64), c.reshape(s.longest, {}), c.scalar(1, DType::kInt64)});
  return s;
}

std::string padded_rows(OpContext& c, const Sequences& s, const std::string& values) {
  const std::string rows = c.node("Add", {c.unsqueeze(s.steps, {1}), c.unsqueeze(s.starts, {0})});
  const std::string last = c.node("Sub", {c.extent(values, 0), c.graph().ints({1})});
  return c.node("Min", {rows, last});
}

std::string flat_positions(OpContext& c, const Sequences& s, const std::string& values) {
  const std::string rows = c.node(
      "Range",
      {c.scalar(0, DType::kInt64), c.reshape(c.extent(values, 0), {}), c.scalar(1, DType::kInt64)});
  const std::string ends = c.slice(s.offsets, 0, 1, INT64_MAX);
  // The sequence of a row is the number of sequences that end at or before it.
  const std::string is_past =
      c.node("GreaterOrEqual", {c.unsqueeze(rows, {1}), c.unsqueeze(ends, {0})});
  const std::string sequence = c.reduce("ReduceSum", c.cast(is_past, DType::kInt64), {1}, false);
  const std::string step = c.node("Sub", {rows, c.node("Gather", {s.starts, sequence})});
  const std::string count = c.extent(s.starts, 0);
  return c.node("Add", {c.node("Mul", {step, count}), sequence});
}

namespace {

// [n, 1, ...]: which sequences are empty, to be broadcast over values of this rank.
std::string empty_flags(OpContext& c, const Sequences& s, int64_t rank) {
  std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
  dims[0] = -1;
  const std::string is_empty = c.node("Equal", {s.lengths, c.graph().ints({0}, {})});
  return c.reshape(is_empty, dims);
}

// The aggregate of all rows of each sequence, for SUM, AVERAGE, SQRT and MAX.
std::string aggregate(OpContext& c, const Sequences& s, const std::string& x,
                      const std::string& type) {
  const int64_t rank = c.rank("X");
  const DType dtype = c.dtype("X");
  const std::string padded = c.node("Gather", {x, padded_rows(c, s, x)});
  const std::string is_inside =
      c.node("Less", {c.unsqueeze(s.steps, {1}), c.unsqueeze(s.lengths, {0})});
  std::vector<int64_t> more;
  for (int64_t i = 2; i <= rank; ++i) more.push_back(i);
  const bool is_max = type == "MAX";
  // Rows past the end repeat the first row for a maximum, and count as 0 for a sum.
  const std::string filler = is_max ? c.slice(padded, 0, 0, 1) : c.scalar(0, dtype);
  const std::string masked = c.node("Where", {c.unsqueeze(is_inside, more), padded, filler});
  const std::string total = c.reduce(is_max ? "ReduceMax" : "ReduceSum", masked, {0}, false);
  if (is_max || type == "SUM") return total;
  std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
  dims[0] = -1;
  std::string count = c.cast(c.reshape(s.lengths, dims), dtype);
  if (type == "SQRT") count = c.node("Sqrt", {count});
  return c.node("Div", {total, count});
}

Status sequence_pool(OpContext& c) {
  const auto type = c.attr<std::string>("pooltype");
  const std::string x = c.in("X");
  const Sequences s = read_sequences(c, "X");
  std::vector<std::string> levels = c.lod("X");
  std::string out;
  if (type == "LAST" || type == "FIRST") {
    const std::string ends = c.slice(s.offsets, 0, 1, INT64_MAX);
    const std::string last = c.node("Sub", {ends, c.graph().ints({1})});
    // An empty sequence at the end starts past the last row; its value is replaced below.
    const std::string bound = c.node("Sub", {c.extent(x, 0), c.graph().ints({1})});
    const std::string rows = c.node("Min", {type == "LAST" ? last : s.starts, bound});
    out = c.node("Gather", {x, c.node("Max", {rows, c.graph().ints({0})})});
  } else if (type == "SUM" || type == "AVERAGE" || type == "SQRT" || type == "MAX") {
    out = aggregate(c, s, x, type);
  } else {
    return c.refuse("sequence_pool with pooltype " + type);
  }
  c.ignore({"is_test"});
  const std::string filler = c.scalar(c.attr<float>("pad_value"), c.dtype("X"));
  if (!levels.empty()) levels.pop_back();
  c.set_lod("Out", levels);
  c.set("Out", c.node("Where", {empty_flags(c, s, c.rank("X")), filler, out}));
  return Ok();
}

Status sequence_softmax(OpContext& c) {
  const std::string x = c.in("X");
  const Sequences s = read_sequences(c, "X");
  const DType dtype = c.dtype("X");
  if (c.rank("X") > 2) return c.refuse("sequence_softmax of this rank");
  c.ignore({"data_format"});
  const std::string flat = c.reshape(x, {-1});
  const std::string padded = c.node("Gather", {flat, padded_rows(c, s, flat)});
  const std::string is_inside =
      c.node("Less", {c.unsqueeze(s.steps, {1}), c.unsqueeze(s.lengths, {0})});
  const std::string low = c.scalar(-std::numeric_limits<float>::infinity(), dtype);
  const std::string masked = c.node("Where", {is_inside, padded, low});
  const std::string soft = c.node("Softmax", {masked}, {{"axis", int64_t{0}}});
  const std::string rows = c.node("Gather", {c.reshape(soft, {-1}), flat_positions(c, s, flat)});
  c.set("Out", c.node("Reshape", {rows, c.shape(x)}));
  return Ok();
}

}  // namespace

void add_sequence_ops(ConverterTable& table) {
  table["sequence_pool"] = sequence_pool;
  table["sequence_softmax"] = sequence_softmax;
}

}  // namespace millrace::interchange
