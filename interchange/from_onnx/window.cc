#include "interchange/from_onnx/window.h"

#include <algorithm>

namespace millrace::interchange {
namespace {

// Computes the padding with which the output has ceil(input / stride) elements.
Status pad_to_same(NodeContext& c, const std::string& image, bool is_upper, Windows& w) {
  const bool is_dilated = std::any_of(w.dilations.begin(), w.dilations.end(),
                                      [](int64_t dilation) { return dilation != 1; });
  for (size_t i = 0; i < w.strides.size(); ++i) {
    const int64_t extent = c.extent(image, static_cast<int64_t>(i) + 2);
    if (extent < 0 && (!is_upper || is_dilated))
      return c.refuse("auto_pad with dilations, or SAME_LOWER, for an unknown size");
    if (extent < 0) {
      w.is_same = true;
      return Ok();
    }
    const int64_t out = (extent + w.strides[i] - 1) / w.strides[i];
    const int64_t reach = w.dilations[i] * (w.kernel[i] - 1) + 1;
    const int64_t pad = std::max<int64_t>(0, (out - 1) * w.strides[i] + reach - extent);
    w.begin[i] = is_upper ? pad / 2 : pad - pad / 2;
    w.end[i] = pad - w.begin[i];
  }
  return Ok();
}

// An attribute with one entry for each spatial dim.
Status read_list(NodeContext& c, const char* name, size_t spatial, int64_t fallback,
                 std::vector<int64_t>& values) {
  values = c.attr_ints(name);
  if (values.empty()) values.assign(spatial, fallback);
  if (values.size() != spatial || *std::min_element(values.begin(), values.end()) < 1 ||
      *std::max_element(values.begin(), values.end()) > kMaxWindow)
    return c.refuse(std::string(name) + " that are not one positive number for each spatial dim");
  return Ok();
}

Status read_pads(NodeContext& c, const std::string& image, Windows& w) {
  const size_t spatial = w.strides.size();
  w.begin.assign(spatial, 0);
  w.end.assign(spatial, 0);
  const std::string automatic = c.attr_string("auto_pad", "NOTSET");
  const std::vector<int64_t> pads = c.attr_ints("pads");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
    return pad_to_same(c, image, automatic == "SAME_UPPER", w);
  if (automatic == "VALID") return Ok();
  if (automatic != "NOTSET") return c.refuse("auto_pad " + automatic);
  if (pads.empty()) return Ok();
  if (pads.size() != 2 * spatial || *std::min_element(pads.begin(), pads.end()) < 0 ||
      *std::max_element(pads.begin(), pads.end()) > kMaxWindow)
    return c.refuse("pads that are negative or not two for each spatial dim");
  w.begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  w.end.assign(pads.begin() + static_cast<std::ptrdiff_t>(spatial), pads.end());
  return Ok();
}

}  // namespace

bool Windows::has_padding() const {
  const auto is_padded = [](int64_t pad) { return pad != 0; };
  return is_same || std::any_of(begin.begin(), begin.end(), is_padded) ||
         std::any_of(end.begin(), end.end(), is_padded);
}

std::vector<int64_t> Windows::pairs() const {
  std::vector<int64_t> all;
  for (size_t i = 0; i < begin.size(); ++i) {
    all.push_back(begin[i]);
    all.push_back(end[i]);
  }
  return all;
}

StatusOr<Windows> read_windows(NodeContext& c, const std::string& image,
                               std::vector<int64_t> kernel) {
  const int64_t rank = c.rank(image);
  if (rank < 3 || rank > 5) return c.refuse("an image of other than one to three spatial dims");
  const auto spatial = static_cast<size_t>(rank - 2);
  Windows w;
  const std::vector<int64_t> stated = c.attr_ints("kernel_shape");
  if (!stated.empty() && !kernel.empty() && stated != kernel)
    return c.refuse("a kernel_shape that is not that of the weights");
  w.kernel = kernel.empty() ? stated : std::move(kernel);
  if (w.kernel.size() != spatial || *std::min_element(w.kernel.begin(), w.kernel.end()) < 1 ||
      *std::max_element(w.kernel.begin(), w.kernel.end()) > kMaxWindow)
    return c.refuse("a kernel whose size is not known");
  MILLRACE_RETURN_IF_ERROR(read_list(c, "strides", spatial, 1, w.strides));
  MILLRACE_RETURN_IF_ERROR(read_list(c, "dilations", spatial, 1, w.dilations));
  MILLRACE_RETURN_IF_ERROR(read_pads(c, image, w));
  if (spatial == 1) {
    w.from_line = true;
    for (auto* const list : {&w.kernel, &w.strides, &w.dilations}) list->insert(list->begin(), 1);
    for (auto* const list : {&w.begin, &w.end}) list->insert(list->begin(), 0);
  }
  return w;
}

std::string to_image(NodeContext& c, const Windows& windows, const std::string& x) {
  return windows.from_line ? c.unsqueeze(x, {2}) : x;
}

std::string from_image(NodeContext& c, const Windows& windows, const std::string& x) {
  return windows.from_line ? c.squeeze(x, {2}) : x;
}

}  // namespace millrace::interchange
