// Pools of images.

#include <algorithm>

#include "interchange/from_onnx/window.h"

namespace millrace::interchange {
namespace {

// With ceil_mode the last window may begin after the image. ONNX leaves such a window out, the op
// does not.
Status check_ceil(NodeContext& c, const std::string& x, const Windows& w) {
  const size_t shift = w.from_line ? 1 : 0;
  for (size_t i = shift; i < w.kernel.size(); ++i) {
    if (w.kernel[i] >= w.strides[i] + w.end[i]) continue;
    const int64_t extent = c.extent(x, static_cast<int64_t>(i - shift) + 2);
    if (extent < 0) return c.refuse("ceil_mode whose last window may be outside of the image");
    const int64_t rest = extent + w.begin[i] + w.end[i] - w.kernel[i];
    const int64_t last = (rest + w.strides[i] - 1) / w.strides[i] * w.strides[i];
    if (last >= extent + w.begin[i])
      return c.refuse("ceil_mode whose last window is outside of the image");
  }
  return Ok();
}

std::string run_pool(NodeContext& c, const std::string& x, const Windows& w, bool is_max,
                     bool ceil_mode, bool exclusive) {
  const bool is_3d = w.kernel.size() == 3;
  return c.op(
      is_3d ? "pool3d" : "pool2d", {{"X", {x}}},
      {ints_attr("ksize", w.kernel), ints_attr("strides", w.strides),
       ints_attr("paddings", w.pairs()),
       string_attr("padding_algorithm", w.is_same ? "SAME" : "EXPLICIT"),
       string_attr("pooling_type", is_max ? "max" : "avg"), bool_attr("ceil_mode", ceil_mode),
       bool_attr("exclusive", exclusive), bool_attr("global_pooling", false),
       bool_attr("adaptive", false), string_attr("data_format", is_3d ? "NCDHW" : "NCHW")});
}

// Averages that count padding are those of the image with a border of zeros.
StatusOr<std::string> counted_pool(NodeContext& c, const std::string& x, Windows w) {
  if (w.is_same) return c.refuse("an average that counts padding, with auto_pad");
  std::vector<int64_t> pads(4, 0);
  const std::vector<int64_t> pairs = w.pairs();
  pads.insert(pads.end(), pairs.begin(), pairs.end());
  const std::string padded =
      c.op("pad", {{"X", {x}}}, {ints_attr("paddings", pads), float_attr("pad_value", 0)});
  std::fill(w.begin.begin(), w.begin.end(), 0);
  std::fill(w.end.begin(), w.end.end(), 0);
  return run_pool(c, padded, w, /*is_max=*/false, /*ceil_mode=*/false, /*exclusive=*/true);
}

Status pool_node(NodeContext& c) {
  const bool is_max = c.type() == "MaxPool";
  const std::string x = c.in(0);
  MILLRACE_ASSIGN_OR_RETURN(const Windows w, read_windows(c, x, {}));
  const bool ceil_mode = c.attr_bool("ceil_mode", false);
  const bool counts = !is_max && c.attr_bool("count_include_pad", false);
  c.ignore({"storage_order"});  // of the indices
  for (const int64_t dilation : w.dilations)
    if (dilation != 1) return c.refuse("a pool with dilations");
  if (ceil_mode) MILLRACE_RETURN_IF_ERROR(check_ceil(c, x, w));
  if (ceil_mode && w.is_same) return c.refuse("ceil_mode with auto_pad");
  if (ceil_mode && counts && w.has_padding())
    return c.refuse("an average that counts padding, with ceil_mode");
  const std::string image = to_image(c, w, x);
  std::string out;
  if (counts && w.has_padding()) {
    MILLRACE_ASSIGN_OR_RETURN(out, counted_pool(c, image, w));
  } else {
    out = run_pool(c, image, w, is_max, ceil_mode, /*exclusive=*/true);
  }
  c.set(0, from_image(c, w, out));
  return Ok();
}

// The whole image is one window.
Status global_pool_node(NodeContext& c) {
  const bool is_max = c.type() == "GlobalMaxPool";
  const std::string x = c.in(0);
  const int64_t rank = c.rank(x);
  if (rank < 3) return c.refuse("an image without spatial dims");
  if (rank == 4) {
    c.set(0, c.op("pool2d", {{"X", {x}}},
                  {ints_attr("ksize", {1, 1}), bool_attr("global_pooling", true),
                   string_attr("pooling_type", is_max ? "max" : "avg")}));
    return Ok();
  }
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < rank; ++i) axes.push_back(i);
  c.set(0, c.op(is_max ? "reduce_max" : "reduce_mean", {{"X", {x}}},
                {ints_attr("dim", axes), bool_attr("keep_dim", true)}));
  return Ok();
}

}  // namespace

void add_pool_nodes(NodeTable& table) {
  table["MaxPool"] = table["AveragePool"] = {pool_node};
  table["GlobalMaxPool"] = table["GlobalAveragePool"] = {global_pool_node};
}

}  // namespace millrace::interchange
