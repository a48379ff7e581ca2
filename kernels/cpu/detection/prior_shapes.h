#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel.h"

// The boxes that prior_box, density_prior_box and anchor_generator put around each cell of a
// feature map, from the attributes of these ops.
namespace millrace::kernels {

/// Size of a box, and the offset of its center from that of the cell; in pixels.
struct PriorShape {
  double width, height;
  double right = 0, down = 0;
};

/// Shapes of prior_box. Errors: lists of different lengths.
StatusOr<std::vector<PriorShape>> prior_shapes(const KernelSetup& op);

/// Attributes of density_prior_box.
struct PriorDensity {
  std::vector<float> sizes;
  std::vector<float> ratios;
  std::vector<int32_t> counts;  ///< centers along each dim, by size
};
/// Errors: lists of different lengths; a count below 1.
StatusOr<PriorDensity> read_density(const KernelSetup& op);
/// Its shapes: count x count centers, distributed over the cell at whole pixels.
/// \param step_width, step_height  size of a cell
std::vector<PriorShape> density_shapes(const PriorDensity& density, double step_width,
                                       double step_height);

/// Attributes of anchor_generator.
struct AnchorAttrs {
  std::vector<float> sizes, ratios, variances, stride;
  float offset;
};
/// Errors: a stride without 2 or variances without 4 entries.
StatusOr<AnchorAttrs> read_anchors(const KernelSetup& op);
/// Its shapes: whole pixels at the size of a cell, then scaled up.
std::vector<PriorShape> anchor_shapes(const AnchorAttrs& attrs);

}  // namespace millrace::kernels
