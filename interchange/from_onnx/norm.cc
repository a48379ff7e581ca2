// Normalizations.

#include <numeric>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

Status batch_norm_node(NodeContext& c) {
  c.ignore({"momentum"});
  if (c.attr_bool("training_mode", false)) return c.refuse("statistics of the batch");
  if (c.opset() < 7 && !c.attr_bool("is_test", false)) return c.refuse("statistics of the batch");
  if (c.opset() < 9 && !c.attr_bool("spatial", true))
    return c.refuse("statistics of single elements");
  const float epsilon = c.attr_float("epsilon", 1e-5F);
  const std::string x = c.in(0);
  if (c.rank(x) < 2) return c.refuse("an operand without channels");
  const std::string mean = c.in(3);
  const std::string variance = c.in(4);
  if (c.constant(mean) == nullptr || c.constant(variance) == nullptr) {
    // The op updates its statistics in place, which only parameters can be.
    const auto by_channel = [&](const std::string& v) {
      std::vector<int64_t> dims(static_cast<size_t>(c.rank(x)), 1);
      dims[1] = -1;
      return c.reshape(v, dims);
    };
    const std::string wide =
        c.op("scale", {{"X", {variance}}}, {float_attr("scale", 1), float_attr("bias", epsilon)});
    const std::string centered = c.binary("elementwise_sub", x, by_channel(mean));
    const std::string unit =
        c.binary("elementwise_div", centered, by_channel(c.op("sqrt", {{"X", {wide}}})));
    const std::string scaled = c.binary("elementwise_mul", unit, by_channel(c.in(1)));
    c.set(0, c.binary("elementwise_add", scaled, by_channel(c.in(2))));
    return Ok();
  }
  const std::string out = c.op(
      "batch_norm",
      {{"X", {x}},
       {"Scale", {c.in(1)}},
       {"Bias", {c.in(2)}},
       {"Mean", {mean}},
       {"Variance", {variance}}},
      {float_attr("epsilon", epsilon), float_attr("momentum", 0.9F), bool_attr("is_test", true),
       bool_attr("use_global_stats", false), string_attr("data_layout", "NCHW")},
      "Y");
  c.add_output(out, "MeanOut", mean);
  c.add_output(out, "VarianceOut", variance);
  c.set(0, out);
  return Ok();
}

Status instance_norm_node(NodeContext& c) {
  const std::string x = c.in(0);
  if (c.rank(x) < 3) return c.refuse("an operand without spatial dims");
  c.set(0, c.op("instance_norm", {{"X", {x}}, {"Scale", {c.in(1)}}, {"Bias", {c.in(2)}}},
                {float_attr("epsilon", c.attr_float("epsilon", 1e-5F))}, "Y"));
  return Ok();
}

// The op has one factor for each normalized element.
StatusOr<std::string> flat_factors(NodeContext& c, const std::string& x, int64_t axis,
                                   size_t index) {
  const std::string factors = c.in(index);
  const Dims dims = c.dims(x);
  const Dims own = c.dims(factors);
  if (Dims(dims.begin() + axis, dims.end()) != own)
    return c.refuse("factors with other dims than the normalized ones");
  return own.size() == 1 ? factors : c.reshape(factors, {-1});
}

Status layer_norm_node(NodeContext& c) {
  c.ignore({"stash_type"});  // the op computes in the element type of f32 and f64
  const std::string x = c.in(0);
  const int64_t axis = c.attr_axis("axis", -1, c.rank(x));
  std::vector<SlotVars> inputs = {{"X", {x}}};
  MILLRACE_ASSIGN_OR_RETURN(const std::string scale, flat_factors(c, x, axis, 1));
  inputs.push_back({"Scale", {scale}});
  if (c.has(2)) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string bias, flat_factors(c, x, axis, 2));
    inputs.push_back({"Bias", {bias}});
  }
  c.set(0, c.op("layer_norm", inputs,
                {float_attr("epsilon", c.attr_float("epsilon", 1e-5F)),
                 int_attr("begin_norm_axis", axis)},
                "Y"));
  return Ok();
}

// Operator set 18 has one factor for each group, later ones have one for each channel.
Status group_norm_node(NodeContext& c) {
  c.ignore({"stash_type"});
  const std::string x = c.in(0);
  const int64_t groups = c.attr_int("num_groups", 0);
  const int64_t channels = c.extent(x, 1);
  if (groups < 1 || channels < 1 || channels % groups != 0)
    return c.refuse("a number of channels that is unknown or no multiple of num_groups");
  const auto by_channel = [&](size_t index) {
    const std::string factors = c.in(index);
    if (c.opset() >= 21 || groups == channels) return factors;
    const std::string repeated = c.op("expand_v2", {{"X", {c.reshape(factors, {groups, 1})}}},
                                      {ints_attr("shape", {groups, channels / groups})});
    return c.reshape(repeated, {channels});
  };
  c.set(0, c.op("group_norm", {{"X", {x}}, {"Scale", {by_channel(1)}}, {"Bias", {by_channel(2)}}},
                {float_attr("epsilon", c.attr_float("epsilon", 1e-5F)), int_attr("groups", groups),
                 string_attr("data_layout", "NCHW")},
                "Y"));
  return Ok();
}

// The op does not divide alpha by the size of the window.
Status lrn_node(NodeContext& c) {
  const int64_t size = c.attr_int("size", 0);
  if (size < 1 || size % 2 == 0) return c.refuse("an even window");
  const float alpha = c.attr_float("alpha", 1e-4F);
  const float beta = c.attr_float("beta", 0.75F);
  const float bias = c.attr_float("bias", 1);
  const std::string x = c.in(0);
  if (c.rank(x) != 4) return c.refuse("an operand of other than 4 dims");
  c.set(0, c.op("lrn", {{"X", {x}}},
                {int_attr("n", size), float_attr("alpha", alpha / static_cast<float>(size)),
                 float_attr("beta", beta), float_attr("k", bias),
                 string_attr("data_format", "NCHW")}));
  return Ok();
}

Status lp_norm_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t axis = c.attr_axis("axis", -1, c.rank(x));
  const int64_t p = c.attr_int("p", 2);
  if (p != 1 && p != 2) return c.refuse("a norm of another order than 1 and 2");
  const std::string length = c.op("p_norm", {{"X", {x}}},
                                  {float_attr("porder", static_cast<float>(p)),
                                   int_attr("axis", axis), bool_attr("keepdim", true)});
  c.set(0, c.binary("elementwise_div", x, length));
  return Ok();
}

}  // namespace

void add_norm_nodes(NodeTable& table) {
  table["BatchNormalization"] = {batch_norm_node, 5, 5};
  table["InstanceNormalization"] = {instance_norm_node, 3, 3};
  table["LayerNormalization"] = {layer_norm_node, 2, 3};
  table["GroupNormalization"] = {group_norm_node, 3, 3};
  table["LRN"] = {lrn_node};
  table["LpNormalization"] = {lp_norm_node};
}

}  // namespace millrace::interchange
