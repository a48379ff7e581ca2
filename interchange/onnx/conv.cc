// Convolutions and their transposes.

#include "interchange/onnx/layout.h"
#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

std::string add_bias(OpContext& c, const std::string& out, size_t spatial) {
  if (!c.has("Bias")) return out;
  std::vector<int64_t> dims(spatial + 1, 1);
  dims[0] = -1;
  return c.node("Add", {out, c.reshape(c.in("Bias"), dims)});
}

Status conv(OpContext& c) {
  const auto spatial = static_cast<size_t>(c.rank("Input") - 2);
  const bool is_last = is_channels_last(c, "data_format");
  MILLRACE_ASSIGN_OR_RETURN(const Padding padding, read_padding(c, spatial));
  std::vector<int64_t> dilations = spread(c.ints("dilations"), spatial);
  // The original ignores dilations there.
  if (padding.is_same) dilations.assign(spatial, 1);
  std::vector<NodeAttr> attrs = {{"strides", spread(c.ints("strides"), spatial)},
                                 {"dilations", dilations},
                                 {"group", c.attr<int64_t>("groups")}};
  add_padding(padding, attrs);
  c.ignore({"use_cudnn"});
  const std::string x = to_channels_first(c, c.in("Input"), spatial, is_last);
  const std::string out =
      add_bias(c, c.node("Conv", {x, c.in("Filter")}, std::move(attrs)), spatial);
  c.set("Output", to_channels_last(c, out, spatial, is_last));
  return Ok();
}

// What the op adds to the smallest output size, so that it has the size that output_size states.
StatusOr<std::vector<int64_t>> output_padding(OpContext& c, const Padding& padding, bool is_last,
                                              const std::vector<int64_t>& strides,
                                              const std::vector<int64_t>& dilations) {
  const size_t spatial = strides.size();
  std::vector<int64_t> more = c.ints("output_padding");
  if (more.empty()) more.assign(spatial, 0);
  const std::vector<int64_t> wanted = c.ints("output_size");
  if (wanted.empty()) return more;
  const Dims input = c.dims("Input");
  const Dims filter = c.dims("Filter");
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t extent = input[i + (is_last ? 1 : 2)];
    if (extent < 0 || filter[i + 2] < 0) return c.refuse("output_size with an unknown input size");
    const int64_t smallest = (extent - 1) * strides[i] + dilations[i] * (filter[i + 2] - 1) + 1 -
                             padding.begin[i] - padding.end[i];
    more[i] = wanted[i % wanted.size()] - smallest;
    if (more[i] < 0) return c.refuse("output_size below the smallest size");
  }
  return more;
}

Status conv_transpose(OpContext& c) {
  const auto spatial = static_cast<size_t>(c.rank("Input") - 2);
  const bool is_last = is_channels_last(c, "data_format");
  MILLRACE_ASSIGN_OR_RETURN(const Padding padding, read_padding(c, spatial));
  if (padding.is_same) return c.refuse("a transposed convolution with padding_algorithm SAME");
  const std::vector<int64_t> strides = spread(c.ints("strides"), spatial);
  const std::vector<int64_t> dilations = spread(c.ints("dilations"), spatial);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> more,
                            output_padding(c, padding, is_last, strides, dilations));
  std::vector<NodeAttr> attrs = {{"strides", strides},
                                 {"dilations", dilations},
                                 {"output_padding", more},
                                 {"group", c.attr<int64_t>("groups")}};
  add_padding(padding, attrs);
  const std::string x = to_channels_first(c, c.in("Input"), spatial, is_last);
  const std::string out =
      add_bias(c, c.node("ConvTranspose", {x, c.in("Filter")}, std::move(attrs)), spatial);
  c.set("Output", to_channels_last(c, out, spatial, is_last));
  return Ok();
}

}  // namespace

void add_conv_ops(ConverterTable& table) {
  for (const char* type : {"conv2d", "depthwise_conv2d", "conv3d"}) table[type] = conv;
  for (const char* type : {"conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose"})
    table[type] = conv_transpose;
}

}  // namespace millrace::interchange
