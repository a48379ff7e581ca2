#pragma once

#include <string>
#include <vector>

#include "interchange/from_onnx/node_context.h"

/// Windows of convolutions and pools.
namespace millrace::interchange {

/// What a node says about its windows. Vectors of one spatial dim were extended to two: the image
/// is then one of height 1.
struct Windows {
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> begin;  ///< padding
  std::vector<int64_t> end;
  bool is_same = false;    ///< padding is computed from the sizes when the model runs
  bool from_line = false;  ///< the image has one spatial dim

  /// True if there is padding, or there may be.
  [[nodiscard]] bool has_padding() const;
  /// Paddings as attribute `paddings` lists them: begin and end of each dim.
  [[nodiscard]] std::vector<int64_t> pairs() const;
};

/// Reads kernel_shape, strides, dilations, pads and auto_pad.
///
/// \param image  [batch, channels, spatial...], one to three spatial dims
/// \param kernel  extents of the window where the node need not state them; empty: it must
/// Errors: refusal of other ranks, negative pads and auto_pad with unknown sizes.
StatusOr<Windows> read_windows(NodeContext& c, const std::string& image,
                               std::vector<int64_t> kernel);

/// The image with a spatial dim of extent 1 before its only one, and without it again.
std::string to_image(NodeContext& c, const Windows& windows, const std::string& x);
std::string from_image(NodeContext& c, const Windows& windows, const std::string& x);

}  // namespace millrace::interchange
