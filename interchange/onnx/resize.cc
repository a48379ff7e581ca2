// Images in other sizes.

#include "interchange/onnx/layout.h"
#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

// The factors that the attribute `scale` states; empty if it states none.
std::vector<float> stated_factors(OpContext& c, bool is_v2, size_t spatial) {
  std::vector<float> factors;
  if (is_v2) {
    factors = c.attr<std::vector<float>>("scale");
  } else if (const auto scale = c.attr<float>("scale"); scale > 0) {
    factors = {scale};
  }
  if (factors.size() == 1) factors.assign(spatial, factors[0]);
  for (const float factor : factors)
    if (factor <= 0) return {};
  return factors;
}

// Output pixel i of nearest neighbours reads floor(i * in / out), or with align_corners
// floor(i * (in - 1) / (out - 1) + 0.5).
std::vector<NodeAttr> nearest_attrs(bool align_corners) {
  return {{"mode", std::string("nearest")},
          {"coordinate_transformation_mode",
           std::string(align_corners ? "align_corners" : "asymmetric")},
          {"nearest_mode", std::string(align_corners ? "round_prefer_ceil" : "floor")}};
}

Status interpolate(OpContext& c) {
  const llvm::StringRef type = c.op().type();
  const bool is_v2 = type.ends_with("_v2");
  const auto spatial = static_cast<size_t>(c.rank("X") - 2);
  const bool is_last = is_channels_last(c, "data_layout");
  const bool align_corners = c.attr<bool>("align_corners");
  const auto align_mode = c.attr<int64_t>("align_mode");
  const auto method = c.attr<std::string>("interp_method");
  const bool nearest = method == "nearest";
  if (method == "bicubic") return c.refuse("bicubic interpolation");
  if (spatial < 1 || spatial > 2) return c.refuse("interpolation of volumes");
  if (type.starts_with("linear") != (spatial == 1)) return c.refuse("interpolation of this rank");
  std::vector<NodeAttr> attrs = nearest_attrs(align_corners);
  if (!nearest) {
    // An extent of 1 is made of the first pixel, as in pytorch_half_pixel, not of the middle.
    const char* mode = align_mode == 0 ? "pytorch_half_pixel" : "asymmetric";
    attrs = {
        {"mode", std::string("linear")},
        {"coordinate_transformation_mode", std::string(align_corners ? "align_corners" : mode)}};
  }
  const std::string x = to_channels_first(c, c.in("X"), spatial, is_last);
  const std::vector<float> factors = stated_factors(c, is_v2, spatial);
  c.ignore({"out_d", "out_h", "out_w"});
  std::string out;
  std::string sizes;
  if (c.has("SizeTensor")) {
    std::vector<std::string> parts = {
        c.node("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{2}}})};
    for (const std::string& size : c.ins("SizeTensor"))
      parts.push_back(c.cast(c.reshape(size, {1}), DType::kInt64));
    if (c.has("OutSize")) c.ins("OutSize");
    if (c.has("Scale")) c.ins("Scale");
    sizes = c.node("Concat", parts, {{"axis", int64_t{0}}});
  } else if (c.has("OutSize")) {
    if (c.has("Scale")) c.ins("Scale");
    sizes = c.node("Concat",
                   {c.node("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{2}}}),
                    c.cast(c.reshape(c.in("OutSize"), {-1}), DType::kInt64)},
                   {{"axis", int64_t{0}}});
  } else if (c.has("Scale")) {
    return c.refuse("an interpolation with Scale as a tensor");
  } else if (!factors.empty() && !is_v2) {
    // The first generation computes the extents by the factor, and then reads pixels by the ratio
    // of the extents: Resize with sizes does that, with scales it would use the factor.
    const std::string image =
        c.node("Shape", {x}, {{"start", int64_t{2}}, {"end", static_cast<int64_t>(spatial) + 2}});
    const std::string scaled =
        c.node("Mul", {c.cast(image, DType::kFloat32), c.scalar(factors[0], DType::kFloat32)});
    sizes = c.node("Concat",
                   {c.node("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{2}}}),
                    c.cast(c.node("Floor", {scaled}), DType::kInt64)},
                   {{"axis", int64_t{0}}});
  } else if (factors.empty()) {
    std::vector<int64_t> extents;
    if (spatial == 2) extents.push_back(c.attr<int64_t>("out_h"));
    extents.push_back(c.attr<int64_t>("out_w"));
    sizes = c.node("Concat",
                   {c.node("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{2}}}),
                    c.graph().ints(extents)},
                   {{"axis", int64_t{0}}});
  }
  if (!sizes.empty()) {
    out = c.node("Resize", {x, "", "", sizes}, std::move(attrs));
  } else {
    std::vector<double> scales = {1, 1};
    scales.insert(scales.end(), factors.begin(), factors.end());
    out = c.node(
        "Resize",
        {x, "", c.graph().numbers(scales, DType::kFloat32, {static_cast<int64_t>(scales.size())})},
        std::move(attrs));
  }
  c.set("Out", to_channels_last(c, out, spatial, is_last));
  return Ok();
}

Status grid_sampler(OpContext& c) {
  if (c.rank("X") != 4) return c.refuse("grid_sampler of volumes");
  auto mode = c.attr<std::string>("mode");
  if (mode == "nearest")
    return c.refuse(
        "grid_sampler with mode nearest: it rounds halves away from zero, ONNX to even");
  if (mode == "bilinear" && c.opset() >= 20) mode = "linear";  // renamed there
  c.set("Output", c.node("GridSample", {c.in("X"), c.in("Grid")},
                         {{"mode", mode},
                          {"padding_mode", c.attr<std::string>("padding_mode")},
                          {"align_corners", int64_t{c.attr<bool>("align_corners")}}}));
  return Ok();
}

}  // namespace

void add_resize_ops(ConverterTable& table) {
  for (const char* type : {"nearest_interp", "nearest_interp_v2", "bilinear_interp",
                           "bilinear_interp_v2", "linear_interp", "linear_interp_v2"})
    table[type] = interpolate;
  table["grid_sampler"] = grid_sampler;
}

}  // namespace millrace::interchange
