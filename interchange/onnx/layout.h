#pragma once

#include <vector>

#include "interchange/onnx/op_context.h"

/// Layouts and paddings of images, for convolutions, pools and normalizations.
namespace millrace::interchange {

/// True if the attribute says that the channels are the last dim.
bool is_channels_last(OpContext& c, llvm::StringRef attr);

/// ONNX knows images with the channels first only. Both return the value itself if it is so.
/// \param spatial  number of dims besides batch and channels
std::string to_channels_first(OpContext& c, const std::string& value, size_t spatial, bool is_last);
std::string to_channels_last(OpContext& c, const std::string& value, size_t spatial, bool is_last);

/// A list with one entry for each spatial dim; a single entry is for all of them.
std::vector<int64_t> spread(std::vector<int64_t> values, size_t spatial);

/// Elements that are added around an image.
struct Padding {
  bool is_same = false;  ///< as many as the output size input / stride needs
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
};

/// Reads `paddings` and `padding_algorithm`. Errors: refusal of a list of another length.
StatusOr<Padding> read_padding(OpContext& c, size_t spatial);

/// Adds `pads` or `auto_pad` to the attributes of a node.
void add_padding(const Padding& padding, std::vector<NodeAttr>& attrs);

}  // namespace millrace::interchange
