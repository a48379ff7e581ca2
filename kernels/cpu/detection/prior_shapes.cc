#include "kernels/cpu/detection/prior_shapes.h"

#include <algorithm>
#include <cmath>

namespace millrace::kernels {
namespace prior_shape_lists {
namespace {

// The aspect ratios in use: 1, then each given ratio that is new, followed by its inverse if flip.
std::vector<float> all_ratios(const std::vector<float>& given, bool flip) {
  std::vector<float> ratios = {1.0F};
  for (const float ratio : given) {
    const bool known = std::any_of(ratios.begin(), ratios.end(), [ratio](float other) {
      return std::fabs(ratio - other) < 1e-6F;
    });
    if (known) continue;
    ratios.push_back(ratio);
    if (flip) ratios.push_back(1.0F / ratio);
  }
  return ratios;
}

}  // namespace
}  // namespace prior_shape_lists

StatusOr<std::vector<PriorShape>> prior_shapes(const KernelSetup& op) {
  const auto smallest = op.attr<std::vector<float>>("min_sizes");
  const auto largest = op.attr<std::vector<float>>("max_sizes");
  if (!largest.empty() && largest.size() != smallest.size())
    return op.error("attributes 'min_sizes' and 'max_sizes' must be of one length");
  const auto ratios = prior_shape_lists::all_ratios(op.attr<std::vector<float>>("aspect_ratios"),
                                                    op.attr<bool>("flip"));
  const bool max_second = op.attr<bool>("min_max_aspect_ratios_order");
  std::vector<PriorShape> shapes;
  for (size_t i = 0; i < smallest.size(); ++i) {
    const double size = smallest[i];
    const auto add_large = [&] {
      if (largest.empty()) return;
      const double between = std::sqrt(size * largest[i]);
      shapes.push_back({between, between});
    };
    for (size_t k = 0; k < ratios.size(); ++k) {
      const double root = std::sqrt(static_cast<double>(ratios[k]));
      shapes.push_back({size * root, size / root});
      if (k == 0 && max_second) add_large();
    }
    if (!max_second) add_large();
  }
  return shapes;
}

StatusOr<PriorDensity> read_density(const KernelSetup& op) {
  PriorDensity density{op.attr<std::vector<float>>("fixed_sizes"),
                       op.attr<std::vector<float>>("fixed_ratios"),
                       op.attr<std::vector<int32_t>>("densities")};
  const bool positive = std::all_of(density.counts.begin(), density.counts.end(),
                                    [](int32_t count) { return count >= 1; });
  if (density.sizes.size() == density.counts.size() && positive) return density;
  return op.error(
      "attributes 'densities' and 'fixed_sizes' must be of one length, densities at "
      "least 1");
}

std::vector<PriorShape> density_shapes(const PriorDensity& density, double step_width,
                                       double step_height) {
  const auto step = static_cast<int64_t>((step_width + step_height) * 0.5);
  std::vector<PriorShape> shapes;
  for (size_t i = 0; i < density.sizes.size(); ++i) {
    const int64_t count = density.counts[i];
    const int64_t shift = step / count;
    for (const float ratio : density.ratios) {
      const double root = std::sqrt(static_cast<double>(ratio));
      const double first = -static_cast<double>(step) / 2 + static_cast<double>(shift) / 2;
      for (int64_t row = 0; row < count; ++row) {
        for (int64_t column = 0; column < count; ++column) {
          shapes.push_back({density.sizes[i] * root, density.sizes[i] / root,
                            first + static_cast<double>(column * shift),
                            first + static_cast<double>(row * shift)});
        }
      }
    }
  }
  return shapes;
}

StatusOr<AnchorAttrs> read_anchors(const KernelSetup& op) {
  AnchorAttrs attrs{op.attr<std::vector<float>>("anchor_sizes"),
                    op.attr<std::vector<float>>("aspect_ratios"),
                    op.attr<std::vector<float>>("variances"), op.attr<std::vector<float>>("stride"),
                    op.attr<float>("offset")};
  if (attrs.stride.size() == 2 && attrs.variances.size() == 4) return attrs;
  return op.error("attributes 'stride' and 'variances' must have 2 and 4 entries, found {} and {}",
                  attrs.stride.size(), attrs.variances.size());
}

std::vector<PriorShape> anchor_shapes(const AnchorAttrs& attrs) {
  const double stride_w = attrs.stride[0];
  const double stride_h = attrs.stride[1];
  std::vector<PriorShape> shapes;
  for (const float ratio : attrs.ratios) {
    const double base_w = std::round(std::sqrt(stride_w * stride_h / ratio));
    const double base_h = std::round(base_w * ratio);
    for (const float size : attrs.sizes)
      shapes.push_back({size / stride_w * base_w, size / stride_h * base_h});
  }
  return shapes;
}

}  // namespace millrace::kernels
