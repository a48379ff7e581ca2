// Images in other sizes.

#include <algorithm>
#include <cmath>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

// What the node says about the result. Entries are for all axes.
struct ResizeArgs {
  std::string mode;
  std::string coordinates;
  std::string nearest;
  float cubic_a = -0.75F;
  bool exclude_outside = false;
  std::vector<float> scales;                  // empty: sizes decide
  std::vector<std::optional<int64_t>> sizes;  // nullopt: computed by the model
  std::string sizes_var;                      // int64 [rank]; empty: scales decide
};

// Numbers that may be stated for some axes only.
template <typename T>
StatusOr<std::vector<T>> spread_axes(NodeContext& c, const std::vector<T>& stated,
                                     const std::vector<int64_t>& axes, std::vector<T> all) {
  if (stated.size() != axes.size())
    return c.refuse("scales or sizes that are not one for each axis");
  for (size_t i = 0; i < axes.size(); ++i)
    all[static_cast<size_t>(c.axis_of(axes[i], static_cast<int64_t>(all.size())))] = stated[i];
  return all;
}

std::vector<int64_t> resized_axes(NodeContext& c, int64_t rank) {
  std::vector<int64_t> axes = c.opset() >= 18 ? c.attr_ints("axes") : std::vector<int64_t>();
  if (axes.empty())
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  return axes;
}

Status read_scales(NodeContext& c, const std::string& x, size_t index, ResizeArgs& args) {
  const KnownElements* const known = c.known(c.in(index));
  std::vector<float> stated;
  for (const auto& element : known == nullptr ? KnownElements() : *known) {
    if (!element || !(*element > 0)) return c.refuse("scales that the model computes");
    stated.push_back(static_cast<float>(*element));
  }
  const int64_t rank = c.rank(x);
  MILLRACE_ASSIGN_OR_RETURN(args.scales,
                            spread_axes(c, stated, resized_axes(c, rank),
                                        std::vector<float>(static_cast<size_t>(rank), 1)));
  return Ok();
}

Status read_sizes(NodeContext& c, const std::string& x, ResizeArgs& args) {
  const auto rank = static_cast<size_t>(c.rank(x));
  const std::string var = c.in(3);
  const std::vector<int64_t> axes = resized_axes(c, c.rank(x));
  std::vector<std::optional<int64_t>> stated;
  if (const KnownElements* const known = c.known(var))
    for (const auto& element : *known)
      stated.push_back(element ? std::optional<int64_t>(to_int64(*element)) : std::nullopt);
  else
    stated.resize(axes.size());
  std::vector<std::optional<int64_t>> all(rank);
  for (size_t i = 0; i < rank; ++i)
    if (const int64_t own = c.extent(x, static_cast<int64_t>(i)); own >= 0) all[i] = own;
  MILLRACE_ASSIGN_OR_RETURN(args.sizes, spread_axes(c, stated, axes, all));
  if (axes.size() == rank) args.sizes_var = var;
  return Ok();
}

// Runtimes disagree on where corners are if the scaled extent is no integer.
Status check_corners(NodeContext& c, const std::string& x, const ResizeArgs& args) {
  for (size_t i = 0; args.coordinates == "align_corners" && i < args.scales.size(); ++i) {
    const int64_t extent = c.extent(x, static_cast<int64_t>(i));
    const float scaled = args.scales[i] * static_cast<float>(std::max<int64_t>(extent, 1));
    if (scaled != std::floor(scaled))
      return c.refuse("align_corners with a scaled extent that is no integer");
  }
  return Ok();
}

Status read_resize(NodeContext& c, const std::string& x, ResizeArgs& args) {
  args.mode = c.attr_string("mode", "nearest");
  if (c.type() == "Upsample" || c.opset() < 11) {
    args.coordinates = "asymmetric";
    args.nearest = "floor";
    if (c.opset() < 9) {
      args.scales = c.attr_floats("scales");
      if (args.scales.size() != static_cast<size_t>(c.rank(x)))
        return c.refuse("scales that are not one for each axis");
    } else {
      MILLRACE_RETURN_IF_ERROR(read_scales(c, x, 1, args));
    }
    for (const float scale : args.scales)
      if (scale < 1 || (args.mode == "nearest" && scale != std::floor(scale)))
        return c.refuse("a scale that is below 1 or no integer, in this operator set");
    return Ok();
  }
  args.coordinates = c.attr_string("coordinate_transformation_mode", "half_pixel");
  args.nearest = c.attr_string("nearest_mode", "round_prefer_floor");
  args.cubic_a = c.attr_float("cubic_coeff_a", -0.75F);
  args.exclude_outside = c.attr_bool("exclude_outside", false);
  if (args.coordinates == "tf_crop_and_resize")
    return c.refuse("coordinate_transformation_mode " + args.coordinates);
  c.ignore({"extrapolation_value"});  // of tf_crop_and_resize
  if (c.attr_bool("antialias", false)) return c.refuse("antialias");
  if (c.attr_string("keep_aspect_ratio_policy", "stretch") != "stretch")
    return c.refuse("keep_aspect_ratio_policy");
  if (c.has(1)) c.in(1);  // the region of tf_crop_and_resize
  const bool has_scales = c.has(2) && c.extent(c.in(2), 0) != 0;
  if (c.has(3)) return read_sizes(c, x, args);
  if (!has_scales) return c.refuse("neither scales nor sizes");
  MILLRACE_RETURN_IF_ERROR(read_scales(c, x, 2, args));
  return check_corners(c, x, args);
}

// The attributes of an op that computes the same; nullopt if there is none.
std::optional<std::vector<OpAttr>> interp_attrs(const ResizeArgs& args, size_t rank,
                                                const std::vector<bool>& maybe_one) {
  const bool align = args.coordinates == "align_corners";
  if (args.exclude_outside) return std::nullopt;
  if (args.mode == "nearest") {
    const bool floors = args.coordinates == "asymmetric" && args.nearest == "floor";
    const bool rounds = align && args.nearest == "round_prefer_ceil";
    if (rank != 4 || (!floors && !rounds)) return std::nullopt;
    return std::vector<OpAttr>{bool_attr("align_corners", align), int_attr("align_mode", 1)};
  }
  // An extent of 1 is made of the first pixel by the op, of the middle with half_pixel.
  const bool one = std::find(maybe_one.begin(), maybe_one.end(), true) != maybe_one.end();
  const bool half =
      args.coordinates == "pytorch_half_pixel" || (args.coordinates == "half_pixel" && !one);
  if (args.mode != "linear" || (!align && !half && args.coordinates != "asymmetric"))
    return std::nullopt;
  return std::vector<OpAttr>{bool_attr("align_corners", align),
                             int_attr("align_mode", half ? 0 : 1)};
}

// Tries an interpolation op, which can compute the sizes when the model runs.
Status by_op(NodeContext& c, const std::string& x, const ResizeArgs& args, std::string& out) {
  const auto rank = static_cast<size_t>(c.rank(x));
  if (rank < 3 || rank > 4) return Ok();
  std::vector<bool> maybe_one(rank, false);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t extent = c.extent(x, static_cast<int64_t>(i));
    if (!args.scales.empty()) {
      if (i < 2 && args.scales[i] != 1) return Ok();
      maybe_one[i] = args.scales[i] < 1;
    } else {
      if (i < 2 && args.sizes[i] && extent >= 0 && *args.sizes[i] != extent) return Ok();
      maybe_one[i] = !args.sizes[i] || *args.sizes[i] == 1;
    }
    if (i < 2) maybe_one[i] = false;
  }
  std::optional<std::vector<OpAttr>> attrs = interp_attrs(args, rank, maybe_one);
  if (!attrs) return Ok();
  std::vector<SlotVars> inputs = {{"X", {x}}};
  if (!args.scales.empty()) {
    attrs->push_back({"scale", AttrValue::of_floats({args.scales.begin() + 2, args.scales.end()})});
  } else if (std::all_of(args.sizes.begin() + 2, args.sizes.end(),
                         [](const auto& size) { return size.has_value(); })) {
    if (rank == 4) attrs->push_back(int_attr("out_h", *args.sizes[2]));
    attrs->push_back(int_attr("out_w", *args.sizes.back()));
  } else if (!args.sizes_var.empty()) {
    const std::string spatial = c.slice(args.sizes_var, 0, 2, static_cast<int64_t>(rank));
    inputs.push_back({"OutSize", {c.cast(spatial, DType::kInt32)}});
  } else {
    return Ok();
  }
  const bool is_nearest = args.mode == "nearest";
  attrs->push_back(string_attr("data_layout", "NCHW"));
  attrs->push_back(string_attr("interp_method", is_nearest  ? "nearest"
                                                : rank == 4 ? "bilinear"
                                                            : "linear"));
  const char* const type = is_nearest  ? "nearest_interp_v2"
                           : rank == 4 ? "bilinear_interp_v2"
                                       : "linear_interp_v2";
  out = c.op(type, inputs, *attrs);
  return Ok();
}

// Where an element of the result is in the operand.
std::optional<float> original(const std::string& coordinates, float at, float scale, float size_in,
                              float size_out) {
  if (coordinates == "half_pixel") return (at + 0.5F) / scale - 0.5F;
  if (coordinates == "pytorch_half_pixel") return size_out > 1 ? (at + 0.5F) / scale - 0.5F : 0.0F;
  if (coordinates == "asymmetric") return at / scale;
  if (coordinates == "tf_half_pixel_for_nn") return (at + 0.5F) / scale;
  if (coordinates == "align_corners")
    return size_out == 1 ? 0 : at * (size_in - 1) / (size_out - 1);
  if (coordinates == "half_pixel_symmetric") {
    const float offset = size_in / 2 * (1 - size_out / (scale * size_in));
    return offset + (at + 0.5F) / scale - 0.5F;
  }
  return std::nullopt;
}

std::optional<float> nearest_of(const std::string& rule, float at) {
  if (rule == "floor") return std::floor(at);
  if (rule == "ceil") return std::ceil(at);
  if (rule == "round_prefer_floor") return std::ceil(at - 0.5F);
  if (rule == "round_prefer_ceil") return std::floor(at + 0.5F);
  return std::nullopt;
}

std::vector<float> tap_weights(const ResizeArgs& args, float fraction) {
  if (args.mode == "linear") return {1 - fraction, fraction};
  const float a = args.cubic_a;
  const auto near_part = [&](float d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far_part = [&](float d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far_part(fraction + 1), near_part(fraction), near_part(1 - fraction),
          far_part(2 - fraction)};
}

// Elements of one axis that are read, by tap, and their weights.
struct Taps {
  std::vector<std::vector<int64_t>> index;
  std::vector<std::vector<double>> weight;
};

StatusOr<Taps> taps_of(NodeContext& c, const ResizeArgs& args, int64_t in, int64_t out,
                       float scale) {
  Taps taps;
  const size_t count = args.mode == "nearest" ? 1 : (args.mode == "linear" ? 2 : 4);
  taps.index.resize(count);
  taps.weight.resize(count);
  for (int64_t i = 0; i < out; ++i) {
    const auto at = original(args.coordinates, static_cast<float>(i), scale, static_cast<float>(in),
                             static_cast<float>(out));
    if (!at) return c.refuse("coordinate_transformation_mode " + args.coordinates);
    if (count == 1) {
      const auto nearest = nearest_of(args.nearest, *at);
      if (!nearest) return c.refuse("nearest_mode " + args.nearest);
      taps.index[0].push_back(std::clamp<int64_t>(static_cast<int64_t>(*nearest), 0, in - 1));
      continue;
    }
    const float base = std::floor(*at);
    std::vector<float> weights = tap_weights(args, *at - base);
    const int64_t first = static_cast<int64_t>(base) - (count == 4 ? 1 : 0);
    float sum = 0;
    for (size_t k = 0; k < count; ++k) {
      const int64_t from = first + static_cast<int64_t>(k);
      if (args.exclude_outside && (from < 0 || from >= in)) weights[k] = 0;
      sum += weights[k];
    }
    for (size_t k = 0; k < count; ++k) {
      taps.index[k].push_back(std::clamp<int64_t>(first + static_cast<int64_t>(k), 0, in - 1));
      taps.weight[k].push_back(args.exclude_outside ? weights[k] / sum : weights[k]);
    }
  }
  return taps;
}

std::string along_axis(NodeContext& c, const std::string& x, int64_t axis, const Taps& taps) {
  std::string out;
  for (size_t k = 0; k < taps.index.size(); ++k) {
    const std::string part =
        c.op("gather", {{"X", {x}}, {"Index", {c.longs(taps.index[k])}}}, {int_attr("axis", axis)});
    if (taps.weight[k].empty()) return part;
    Dims dims(static_cast<size_t>(c.rank(x)), 1);
    dims[static_cast<size_t>(axis)] = static_cast<int64_t>(taps.weight[k].size());
    const std::string weighted =
        c.binary("elementwise_mul", part, c.numbers(taps.weight[k], c.dtype(x), dims));
    out = out.empty() ? weighted : c.binary("elementwise_add", out, weighted);
  }
  return out;
}

// One axis after the other, with positions and weights that are computed here.
Status by_taps(NodeContext& c, std::string x, const ResizeArgs& args) {
  if (args.mode != "nearest" && args.mode != "linear" && args.mode != "cubic")
    return c.refuse("the mode " + args.mode);
  if (args.mode != "nearest" && c.dtype(x) != DType::kFloat32 && c.dtype(x) != DType::kFloat64)
    return c.refuse("interpolation of integers");
  for (int64_t axis = 0; axis < c.rank(x); ++axis) {
    const auto i = static_cast<size_t>(axis);
    const int64_t in = c.extent(x, axis);
    const bool is_same =
        args.scales.empty() ? (args.sizes[i] && *args.sizes[i] == in) : args.scales[i] == 1;
    if (is_same) continue;
    if (in < 1 || (args.scales.empty() && !args.sizes[i]))
      return c.refuse("this form of resizing with an unknown size");
    const int64_t out =
        args.scales.empty()
            ? *args.sizes[i]
            : static_cast<int64_t>(std::floor(static_cast<float>(in) * args.scales[i]));
    if (out < 1 || out > (1 << 24)) return c.refuse("a size below 1, or too large");
    const float scale =
        args.scales.empty() ? static_cast<float>(out) / static_cast<float>(in) : args.scales[i];
    MILLRACE_ASSIGN_OR_RETURN(const Taps taps, taps_of(c, args, in, out, scale));
    x = along_axis(c, x, axis, taps);
  }
  c.set(0, x);
  return Ok();
}

Status resize_node(NodeContext& c) {
  const std::string x = c.in(0);
  ResizeArgs args;
  MILLRACE_RETURN_IF_ERROR(read_resize(c, x, args));
  std::string out;
  MILLRACE_RETURN_IF_ERROR(by_op(c, x, args, out));
  if (out.empty()) return by_taps(c, x, args);
  c.set(0, out);
  return Ok();
}

Status grid_sample_node(NodeContext& c) {
  std::string mode = c.attr_string("mode", c.opset() < 20 ? "bilinear" : "linear");
  if (mode == "linear") mode = "bilinear";
  const std::string padding = c.attr_string("padding_mode", "zeros");
  const bool align = c.attr_bool("align_corners", false);
  const std::string x = c.in(0);
  // The op rounds halves away from zero, ONNX to even numbers.
  if (c.rank(x) != 4 || mode != "bilinear")
    return c.refuse("samples of volumes, or the mode " + mode);
  c.set(0, c.op("grid_sampler", {{"X", {x}}, {"Grid", {c.in(1)}}},
                {string_attr("mode", mode), string_attr("padding_mode", padding),
                 bool_attr("align_corners", align)},
                "Output"));
  return Ok();
}

}  // namespace

void add_resize_nodes(NodeTable& table) {
  table["Resize"] = {resize_node, 1, 4};
  table["Upsample"] = {resize_node, 1, 2};
  table["GridSample"] = {grid_sample_node, 2, 2};
}

}  // namespace millrace::interchange
