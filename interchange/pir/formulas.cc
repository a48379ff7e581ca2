// Ops that PIR lacks, as formulas of those that it has.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

Value scaled(OpContext& c, const Value& x, double factor, double bias = 0) {
  return c.node("scale", {x, c.full(factor, DType::kFloat32)},
                {of_f32("bias", bias), of_bool("bias_after_scale", true)}, x.type());
}

Value binary_of(OpContext& c, const char* name, const Value& x, const Value& y) {
  return c.node(name, {x, y}, {}, x.type());
}

// The logarithm, with the limits that the original has where it is infinite.
Value limited_log(OpContext& c, const Value& x) {
  return c.node("clip",
                {c.node("log", {x}, {}, x.type()), c.full(-1e20, DType::kFloat32),
                 c.full(1e20, DType::kFloat32)},
                {}, x.type());
}

Value filled_like(OpContext& c, const Value& x, double value) {
  return c.node("full_like",
                {x, c.full(value, is_integer(x.type().dtype) ? DType::kInt64 : DType::kFloat32)},
                {of_dtype("dtype", x.type().dtype), of_place(false)}, x.type());
}

// The probabilities at the labels of hard cross entropy, which has a column for each class.
struct AtLabels {
  Value index;       // 0 where the label is the one to ignore
  Value is_ignored;  // that it is
  Value found;       // the probability
  int64_t axis = 0;  // of the classes
};

AtLabels at_labels(OpContext& c, const Value& x, const TensorType& column) {
  AtLabels at;
  at.axis = static_cast<int64_t>(x.type().dims.size()) - 1;
  at.index = c.cast(c.in("Label"), DType::kInt64);
  if (at.index.type().dims.size() < x.type().dims.size())
    at.index = c.unsqueeze(at.index, {at.axis});
  TensorType flag = at.index.type();
  flag.dtype = DType::kBool;
  const auto ignored = static_cast<double>(c.attr<int64_t>("ignore_index"));
  at.is_ignored = c.node("equal", {at.index, filled_like(c, at.index, ignored)}, {}, flag);
  at.index =
      c.node("where", {at.is_ignored, filled_like(c, at.index, 0), at.index}, {}, at.index.type());
  at.found = c.node("take_along_axis", {x, at.index}, {of_i32("axis", at.axis)}, column);
  return at;
}

// The value, or another one where the label is the one to ignore.
Value unless_ignored(OpContext& c, const AtLabels& at, const Value& value, double other) {
  return c.node("where", {at.is_ignored, filled_like(c, value, other), value}, {}, value.type());
}

// -log of the probability of the label; 0 where the label is the one to ignore.
void set_hard_loss(OpContext& c, const Value& x) {
  const AtLabels at = at_labels(c, x, c.out_type("Y"));
  const Value chosen = unless_ignored(c, at, at.found, 1);
  c.set("Y", c.with_lod_of("X", scaled(c, limited_log(c, chosen), -1)));
  c.set("MatchX", unless_ignored(c, at, at.found, 0));
}

Status cross_entropy(OpContext& c) {
  const Value x = c.in("X");
  if (c.op().type() == "cross_entropy2" || !c.attr<bool>("soft_label")) {
    set_hard_loss(c, x);
    return Ok();
  }
  const Value label = c.in("Label");
  c.ignore({"ignore_index"});
  const TensorType type = c.out_type("Y");
  const Value terms = binary_of(c, "multiply", label, limited_log(c, x));
  const Value total = c.node("sum", {terms, c.int_list({-1})},
                             {of_dtype("dtype", type.dtype), of_bool("keepdim", true)}, type);
  c.set("Y", c.with_lod_of("X", scaled(c, total, -1)));
  return Ok();
}

// (x - sum / size) * sqrt(size / square sum), by column.
Status data_norm(OpContext& c) {
  if (c.attr<int64_t>("slot_dim") > 0) return c.refuse("data_norm that skips slots");
  c.ignore({"epsilon", "summary_decay_rate", "sync_stats", "data_layout"});
  const Value x = c.in("X");
  const Value size = c.in("BatchSize");
  const Value means = binary_of(c, "divide", c.in("BatchSum"), size);
  const Value ratio = binary_of(c, "divide", size, c.in("BatchSquareSum"));
  const Value scales = c.node("sqrt", {ratio}, {}, ratio.type());
  Value y = binary_of(c, "multiply", binary_of(c, "subtract", x, means), scales);
  const bool is_affine = c.attr<bool>("enable_scale_and_shift");
  const Value weight = c.in_or_none("scale_w");
  const Value bias = c.in_or_none("bias");
  if (is_affine) {
    if (!weight.exists() || !bias.exists()) return c.refuse("data_norm without scale_w and bias");
    y = binary_of(c, "add", binary_of(c, "multiply", y, weight), bias);
  }
  c.set("Y", y);
  c.set("Means", means);
  c.set("Scales", scales);
  return Ok();
}

// log(1 + exp(left - right)) - label * (left - right)
Status rank_loss(OpContext& c) {
  const Value difference = binary_of(c, "subtract", c.in("Left"), c.in("Right"));
  const Value soft = c.node("softplus", {difference},
                            {of_f64("beta", 1), of_f64("threshold", 1e30)}, difference.type());
  const Value weighted = binary_of(c, "multiply", c.in("Label"), difference);
  c.set("Out", binary_of(c, "subtract", soft, weighted));
  return Ok();
}

// Whether any element is NaN or infinite, or all are finite.
Status check_elements(OpContext& c) {
  const std::string type = c.op().type().str();
  const Value x = c.in("X");
  TensorType flags = x.type();
  flags.dtype = DType::kBool;
  Value found = c.node(type, {x}, {}, flags);
  const char* const join = type == "isfinite" ? "all" : "any";
  found = c.node(join, {found}, {of_i64s("axis", {}), of_bool("keepdim", false)},
                 {.dtype = DType::kBool, .dims = {}});
  const TensorType out = c.out_type("Out");
  c.set("Out", c.cast(c.reshape(found, {out.dims.begin(), out.dims.end()}), out.dtype));
  return Ok();
}

// -dy / probability at the label; 0 elsewhere, and where the label is the one to ignore.
Value hard_loss_gradient(OpContext& c, const Value& x, const Value& grad) {
  const AtLabels at = at_labels(c, x, grad.type());
  const Value quotient = scaled(c, binary_of(c, "divide", grad, at.found), -1);
  const std::vector<Attr> attrs = {of_i32("axis", at.axis), of_string("reduce", "assign"),
                                   of_bool("include_self", true)};
  return c.node("put_along_axis",
                {filled_like(c, x, 0), at.index, unless_ignored(c, at, quotient, 0)}, attrs,
                x.type());
}

Status cross_entropy_gradient(OpContext& c) {
  const Value x = c.in("X");
  const Value grad = c.in("Y@GRAD");
  Value result;
  if (c.attr<bool>("soft_label")) {
    c.ignore({"ignore_index"});
    const Value weighted = c.node("multiply", {c.in("Label"), grad}, {}, x.type());
    result = scaled(c, binary_of(c, "divide", weighted, x), -1);
  } else {
    result = hard_loss_gradient(c, x, grad);
  }
  c.set("X@GRAD", c.with_lod_of("X", result));
  return Ok();
}

// The gradients of the statistics are the number of rows, their sum and their squared distance from
// the means.
Status data_norm_gradient(OpContext& c) {
  if (c.attr<int64_t>("slot_dim") > 0) return c.refuse("data_norm that skips slots");
  if (c.attr<bool>("enable_scale_and_shift")) return c.refuse("data_norm with scale_w and bias");
  for (const char* slot : {"BatchSize", "BatchSum", "BatchSquareSum"}) c.note_input_slot(slot);
  for (const char* slot : {"BatchSize", "BatchSum", "BatchSquareSum"}) c.note_output_slot(slot);
  c.ignore({"summary_decay_rate", "sync_stats", "data_layout"});
  const auto epsilon = static_cast<double>(c.attr<float>("epsilon"));
  const Value x = c.in("X");
  const Value means = c.in("Means");
  if (c.computes("X@GRAD"))
    c.set("X@GRAD", binary_of(c, "multiply", c.in("Y@GRAD"), c.in("Scales")));
  else
    for (const char* slot : {"Y@GRAD", "Scales"}) c.note_input_slot(slot);
  const auto total = [&](const Value& value) {
    return c.node("sum", {value, c.int_list({0})},
                  {of_dtype("dtype", x.type().dtype), of_bool("keepdim", false)}, means.type());
  };
  const Value count = total(filled_like(c, x, 1));
  if (c.computes("BatchSize@GRAD")) c.set("BatchSize@GRAD", count);
  if (c.computes("BatchSum@GRAD")) c.set("BatchSum@GRAD", total(x));
  if (!c.computes("BatchSquareSum@GRAD")) return Ok();
  const Value distance = binary_of(c, "subtract", x, means);
  const Value square = total(c.node("square", {distance}, {}, x.type()));
  c.set("BatchSquareSum@GRAD", binary_of(c, "add", square, scaled(c, count, epsilon)));
  return Ok();
}

}  // namespace

void add_formula_gradient_ops(Converters& table) {
  table.functions["cross_entropy_grad"] = cross_entropy_gradient;
  table.functions["data_norm_grad"] = data_norm_gradient;
}

void add_formula_ops(Converters& table) {
  table.functions["cross_entropy"] = table.functions["cross_entropy2"] = cross_entropy;
  table.functions["data_norm"] = data_norm;
  table.functions["rank_loss"] = rank_loss;
  table.functions["isnan"] = table.functions["isinf"] = check_elements;
  table.functions["isfinite"] = check_elements;
}

}  // namespace millrace::interchange::pir
