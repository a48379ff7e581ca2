// Normalizations.

#include "interchange/onnx/layout.h"
#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

Status batch_norm(OpContext& c) {
  c.ignore({"momentum"});
  const bool use_running = c.attr<bool>("is_test") || c.attr<bool>("use_global_stats");
  if (!use_running || c.attr<bool>("trainable_statistics"))
    return c.refuse(
        "batch_norm with the statistics of the batch (neither is_test nor "
        "use_global_stats)");
  const auto spatial = static_cast<size_t>(c.rank("X") - 2);
  const bool is_last = is_channels_last(c, "data_layout");
  const std::string x = to_channels_first(c, c.in("X"), spatial, is_last);
  if (c.has("MomentumTensor")) c.ins("MomentumTensor");
  const std::string out =
      c.node("BatchNormalization", {x, c.in("Scale"), c.in("Bias"), c.in("Mean"), c.in("Variance")},
             {{"epsilon", c.attr<float>("epsilon")}});
  c.set("Y", to_channels_last(c, out, spatial, is_last));
  return Ok();
}

Status layer_norm(OpContext& c) {
  const auto axis = c.attr<int64_t>("begin_norm_axis");
  const std::string x = c.in("X");
  const std::string dims = c.node("Shape", {x}, {{"start", axis}});
  std::vector<std::string> inputs = {x};
  if (c.has("Scale")) {
    inputs.push_back(c.node("Reshape", {c.in("Scale"), dims}));
  } else {
    inputs.push_back(c.node("Expand", {c.scalar(1, c.dtype("X")), dims}));
  }
  if (c.has("Bias")) inputs.push_back(c.node("Reshape", {c.in("Bias"), dims}));
  c.set("Y", c.node("LayerNormalization", inputs,
                    {{"axis", axis}, {"epsilon", c.attr<float>("epsilon")}}));
  return Ok();
}

Status instance_norm(OpContext& c) {
  if (!c.has("Scale") || !c.has("Bias")) return c.refuse("instance_norm without Scale and Bias");
  if (c.rank("X") < 3) return c.refuse("instance_norm of rank 2");
  c.set("Y", c.node("InstanceNormalization", {c.in("X"), c.in("Scale"), c.in("Bias")},
                    {{"epsilon", c.attr<float>("epsilon")}}));
  return Ok();
}

// Each group is normalized as one channel of a [batch, groups, rest] image.
Status group_norm(OpContext& c) {
  const auto groups = c.attr<int64_t>("groups");
  const int64_t rank = c.rank("X");
  const auto spatial = static_cast<size_t>(rank - 2);
  const bool is_last = is_channels_last(c, "data_layout");
  const DType dtype = c.dtype("X");
  const std::string x = to_channels_first(c, c.in("X"), spatial, is_last);
  const std::vector<double> ones(static_cast<size_t>(groups), 1.0);
  const std::vector<double> zeros(static_cast<size_t>(groups), 0.0);
  const std::string normal =
      c.node("InstanceNormalization",
             {c.reshape(x, {0, groups, -1}), c.graph().numbers(ones, dtype, {groups}),
              c.graph().numbers(zeros, dtype, {groups})},
             {{"epsilon", c.attr<float>("epsilon")}});
  std::string out = c.node("Reshape", {normal, c.shape(x)});
  std::vector<int64_t> dims(spatial + 1, 1);
  dims[0] = -1;
  if (c.has("Scale")) out = c.node("Mul", {out, c.reshape(c.in("Scale"), dims)});
  if (c.has("Bias")) out = c.node("Add", {out, c.reshape(c.in("Bias"), dims)});
  c.set("Y", to_channels_last(c, out, spatial, is_last));
  return Ok();
}

// Divides by the Euclidean length along an axis, which is an output as well.
Status norm(OpContext& c) {
  const int64_t axis = c.axis("axis", c.rank("X"));
  const std::string x = c.in("X");
  const std::string sum = c.reduce("ReduceSum", c.node("Mul", {x, x}), {axis}, true);
  const std::string length =
      c.node("Sqrt", {c.node("Add", {sum, c.scalar(c.attr<float>("epsilon"), c.dtype("X"))})});
  c.set("Out", c.node("Div", {x, length}));
  c.set("Norm", c.node("Identity", {length}));
  return Ok();
}

// ONNX divides alpha by the size of the window.
Status lrn(OpContext& c) {
  const auto n = c.attr<int64_t>("n");
  if (n % 2 == 0) return c.refuse("lrn with an even window");
  const bool is_last = is_channels_last(c, "data_format");
  const std::string x = to_channels_first(c, c.in("X"), 2, is_last);
  const std::string out = c.node("LRN", {x},
                                 {{"size", n},
                                  {"alpha", c.attr<float>("alpha") * static_cast<float>(n)},
                                  {"beta", c.attr<float>("beta")},
                                  {"bias", c.attr<float>("k")}});
  c.set("Out", to_channels_last(c, out, 2, is_last));
  return Ok();
}

}  // namespace

void add_norm_ops(ConverterTable& table) {
  table["batch_norm"] = batch_norm;
  table["layer_norm"] = layer_norm;
  table["instance_norm"] = instance_norm;
  table["group_norm"] = group_norm;
  table["lrn"] = lrn;
  table["norm"] = norm;
}

}  // namespace millrace::interchange
