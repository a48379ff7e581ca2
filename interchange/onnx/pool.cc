// Pools of images.

#include <limits>

#include "interchange/onnx/layout.h"
#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

std::string pool_everything(OpContext& c, const std::string& x, bool is_max) {
  return c.node(is_max ? "GlobalMaxPool" : "GlobalAveragePool", {x});
}

// ksize is the size of the output. Windows of equal size are an ordinary pool.
StatusOr<std::string> adaptive_pool(OpContext& c, const std::string& x, bool is_max, bool is_last,
                                    const std::vector<int64_t>& sizes) {
  const Dims dims = c.dims("X");
  std::vector<int64_t> window;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t extent = dims[i + (is_last ? 1 : 2)];
    if (extent < 0 || sizes[i] <= 0 || extent % sizes[i] != 0)
      return c.refuse("an adaptive pool whose windows differ in size, or may differ");
    window.push_back(extent / sizes[i]);
  }
  return c.node(is_max ? "MaxPool" : "AveragePool", {x},
                {{"kernel_shape", window}, {"strides", window}});
}

// [0, 0, begin..., 0, 0, end...] for Pad.
std::string image_pads(OpContext& c, const std::vector<int64_t>& begin,
                       const std::vector<int64_t>& end) {
  std::vector<int64_t> pads = {0, 0};
  pads.insert(pads.end(), begin.begin(), begin.end());
  pads.insert(pads.end(), {0, 0});
  pads.insert(pads.end(), end.begin(), end.end());
  return c.graph().ints(pads);
}

// Averages that count padding, with ceil_mode: the last window may exceed the padded image, and
// what exceeds it does not count. Runtimes do not agree on that, so both the sums and the counts
// are pools of explicitly padded images.
std::string counted_average(OpContext& c, const std::string& x, const Padding& padding,
                            const std::vector<int64_t>& window,
                            const std::vector<int64_t>& strides) {
  const DType dtype = c.dtype("X");
  const std::vector<int64_t> none(window.size(), 0);
  std::vector<int64_t> excess = strides;
  for (int64_t& stride : excess) --stride;
  const auto pool_of = [&](const std::string& image, double around) {
    const std::string padded =
        c.node("Pad", {image, image_pads(c, padding.begin, padding.end), c.scalar(around, dtype)});
    const std::string all =
        c.node("Pad", {padded, image_pads(c, none, excess), c.scalar(0, dtype)});
    return c.node("AveragePool", {all}, {{"kernel_shape", window}, {"strides", strides}});
  };
  const std::string ones = c.node("Expand", {c.scalar(1, dtype), c.shape(x)});
  return c.node("Div", {pool_of(x, 0), pool_of(ones, 1)});
}

StatusOr<std::string> window_pool(OpContext& c, const std::string& x, bool is_max,
                                  const std::vector<int64_t>& window) {
  const size_t spatial = window.size();
  MILLRACE_ASSIGN_OR_RETURN(const Padding padding, read_padding(c, spatial));
  const std::vector<int64_t> strides = spread(c.ints("strides"), spatial);
  const bool ceil_mode = c.attr<bool>("ceil_mode");
  const bool exclusive = c.attr<bool>("exclusive");
  if (!is_max && !exclusive) {
    // The original counts padding after the image up to the amount before it.
    if (padding.is_same || padding.begin != padding.end)
      return c.refuse("an average that counts padding, with other padding before than after");
    if (ceil_mode) return counted_average(c, x, padding, window, strides);
  }
  for (size_t i = 0; ceil_mode && i < spatial; ++i) {
    // ONNX drops a last window that has no element of the image.
    if (window[i] < strides[i] + padding.end[i])
      return c.refuse("a pool with ceil_mode whose last window may lie outside of the image");
  }
  std::vector<NodeAttr> attrs = {{"kernel_shape", window}, {"strides", strides}};
  add_padding(padding, attrs);
  if (ceil_mode && !padding.is_same) attrs.push_back({"ceil_mode", int64_t{1}});
  if (!is_max) attrs.push_back({"count_include_pad", int64_t{!exclusive}});
  return c.node(is_max ? "MaxPool" : "AveragePool", {x}, std::move(attrs));
}

Status pool(OpContext& c) {
  const auto spatial = static_cast<size_t>(c.rank("X") - 2);
  const bool is_last = is_channels_last(c, "data_format");
  const bool is_max = c.attr<std::string>("pooling_type") == "max";
  const std::vector<int64_t> window = spread(c.ints("ksize"), spatial);
  const std::string x = to_channels_first(c, c.in("X"), spatial, is_last);
  const bool adaptive = c.attr<bool>("adaptive");
  std::string out;
  if (c.attr<bool>("global_pooling") || (adaptive && window == std::vector<int64_t>(spatial, 1))) {
    c.ignore({"strides", "paddings", "padding_algorithm", "ceil_mode", "exclusive"});
    out = pool_everything(c, x, is_max);
  } else if (adaptive) {
    c.ignore({"strides", "paddings", "padding_algorithm", "ceil_mode", "exclusive"});
    MILLRACE_ASSIGN_OR_RETURN(out, adaptive_pool(c, x, is_max, is_last, window));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(out, window_pool(c, x, is_max, window));
  }
  c.set("Out", to_channels_last(c, out, spatial, is_last));
  return Ok();
}

}  // namespace

void add_pool_ops(ConverterTable& table) {
  table["pool2d"] = table["pool3d"] = pool;
}

}  // namespace millrace::interchange
