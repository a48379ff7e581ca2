// Convolutions and their transposes.

#include <algorithm>

#include "interchange/from_onnx/window.h"

namespace millrace::interchange {
namespace {

std::string with_bias(NodeContext& c, const std::string& out) {
  if (!c.has(2)) return out;
  return c.op("elementwise_add", {{"X", {out}}, {"Y", {c.in(2)}}}, {int_attr("axis", 1)});
}

std::vector<OpAttr> window_attrs(const Windows& w, int64_t groups) {
  return {ints_attr("strides", w.strides),
          ints_attr("paddings", w.pairs()),
          string_attr("padding_algorithm", w.is_same ? "SAME" : "EXPLICIT"),
          ints_attr("dilations", w.dilations),
          int_attr("groups", groups),
          string_attr("data_format", w.kernel.size() == 3 ? "NCDHW" : "NCHW")};
}

std::vector<int64_t> kernel_of(NodeContext& c, const std::string& filter) {
  const Dims dims = c.dims(filter);
  if (dims.size() < 3) return {};
  return {dims.begin() + 2, dims.end()};
}

Status conv_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::string filter = c.in(1);
  MILLRACE_ASSIGN_OR_RETURN(const Windows w, read_windows(c, x, kernel_of(c, filter)));
  const int64_t groups = c.attr_int("group", 1);
  const char* const type = w.kernel.size() == 3 ? "conv3d" : "conv2d";
  const std::string out =
      c.op(type, {{"Input", {to_image(c, w, x)}}, {"Filter", {to_image(c, w, filter)}}},
           window_attrs(w, groups), "Output");
  c.set(0, from_image(c, w, with_bias(c, out)));
  return Ok();
}

// Output sizes that the node states are reached by padding: ONNX cuts off what is too much, more at
// the start unless auto_pad is SAME_UPPER.
Status fit_output(NodeContext& c, const std::string& x, const std::vector<int64_t>& sizes,
                  const std::vector<int64_t>& more, bool is_upper, Windows& w) {
  const size_t shift = w.from_line ? 1 : 0;
  if (sizes.size() + shift != w.kernel.size())
    return c.refuse("output_shape with another number of sizes than spatial dims");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t k = i + shift;
    const int64_t extent = c.extent(x, static_cast<int64_t>(i) + 2);
    if (extent < 0) return c.refuse("output_shape with an unknown input size");
    const int64_t full =
        w.strides[k] * (extent - 1) + more[k] + (w.kernel[k] - 1) * w.dilations[k] + 1;
    const int64_t cut = full - sizes[i];
    if (cut < 0) return c.refuse("output_shape above the largest size");
    w.begin[k] = is_upper ? cut / 2 : cut - cut / 2;
    w.end[k] = cut - w.begin[k];
  }
  return Ok();
}

Status conv_transpose_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::string filter = c.in(1);
  const std::string automatic = c.attr_string("auto_pad", "NOTSET");
  const bool is_same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  MILLRACE_ASSIGN_OR_RETURN(Windows w, read_windows(c, x, kernel_of(c, filter)));
  const int64_t groups = c.attr_int("group", 1);
  std::vector<int64_t> more = c.attr_ints("output_padding");
  if (w.from_line && !more.empty()) more.insert(more.begin(), 0);
  if (more.empty()) more.assign(w.kernel.size(), 0);
  if (more.size() != w.kernel.size()) return c.refuse("output_padding of another length");
  std::vector<int64_t> sizes = c.attr_ints("output_shape");
  if (!sizes.empty() && sizes.size() == static_cast<size_t>(c.rank(x)))
    sizes.erase(sizes.begin(), sizes.begin() + 2);
  w.is_same = false;
  if (is_same && sizes.empty()) {
    for (int64_t i = 2; i < c.rank(x); ++i)
      sizes.push_back(c.extent(x, i) *
                      w.strides[w.strides.size() - static_cast<size_t>(c.rank(x) - i)]);
  }
  if (!sizes.empty())
    MILLRACE_RETURN_IF_ERROR(fit_output(c, x, sizes, more, automatic == "SAME_UPPER", w));
  std::vector<OpAttr> attrs = window_attrs(w, groups);
  if (std::any_of(more.begin(), more.end(), [](int64_t pad) { return pad != 0; }))
    attrs.push_back(ints_attr("output_padding", more));
  const char* const type = w.kernel.size() == 3 ? "conv3d_transpose" : "conv2d_transpose";
  const std::string out =
      c.op(type, {{"Input", {to_image(c, w, x)}}, {"Filter", {to_image(c, w, filter)}}}, attrs,
           "Output");
  c.set(0, from_image(c, w, with_bias(c, out)));
  return Ok();
}

}  // namespace

void add_conv_nodes(NodeTable& table) {
  table["Conv"] = {conv_node, 2, 3};
  table["ConvTranspose"] = {conv_transpose_node, 2, 3};
}

}  // namespace millrace::interchange
