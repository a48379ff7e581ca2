#include "interchange/onnx/layout.h"

#include <algorithm>

namespace millrace::interchange {

bool is_channels_last(OpContext& c, llvm::StringRef attr) {
  const auto layout = c.attr<std::string>(attr);
  return layout == "NHWC" || layout == "NDHWC" || layout == "NLC";
}

std::string to_channels_first(OpContext& c, const std::string& value, size_t spatial,
                              bool is_last) {
  if (!is_last || spatial == 0) return value;
  std::vector<int64_t> order = {0, static_cast<int64_t>(spatial) + 1};
  for (size_t i = 0; i < spatial; ++i) order.push_back(static_cast<int64_t>(i) + 1);
  return c.transpose(value, order);
}

std::string to_channels_last(OpContext& c, const std::string& value, size_t spatial, bool is_last) {
  if (!is_last || spatial == 0) return value;
  std::vector<int64_t> order = {0};
  for (size_t i = 0; i < spatial; ++i) order.push_back(static_cast<int64_t>(i) + 2);
  order.push_back(1);
  return c.transpose(value, order);
}

std::vector<int64_t> spread(std::vector<int64_t> values, size_t spatial) {
  if (values.size() == 1) values.assign(spatial, values[0]);
  return values;
}

StatusOr<Padding> read_padding(OpContext& c, size_t spatial) {
  Padding padding;
  const auto algorithm = c.attr<std::string>("padding_algorithm");
  const std::vector<int64_t> stated = spread(c.ints("paddings"), spatial);
  padding.is_same = algorithm == "SAME";
  padding.begin.assign(spatial, 0);
  padding.end.assign(spatial, 0);
  if (algorithm == "SAME" || algorithm == "VALID") return padding;
  if (std::any_of(stated.begin(), stated.end(), [](int64_t pad) { return pad < 0; }))
    return c.refuse("negative paddings");
  if (stated.size() == spatial) {
    padding.begin = padding.end = stated;
  } else if (stated.size() == 2 * spatial) {
    for (size_t i = 0; i < spatial; ++i) {
      padding.begin[i] = stated[2 * i];
      padding.end[i] = stated[2 * i + 1];
    }
  } else {
    return c.refuse("paddings of another length than the spatial dims");
  }
  return padding;
}

void add_padding(const Padding& padding, std::vector<NodeAttr>& attrs) {
  if (padding.is_same) {
    attrs.push_back({"auto_pad", std::string("SAME_UPPER")});
    return;
  }
  std::vector<int64_t> pads = padding.begin;
  pads.insert(pads.end(), padding.end.begin(), padding.end.end());
  attrs.push_back({"pads", pads});
}

}  // namespace millrace::interchange
