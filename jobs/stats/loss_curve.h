#pragma once

#include <string>
#include <vector>

namespace millrace::jobs {

/// A plot of a loss over the steps as a self-contained SVG: the values, a running mean, and axes
/// with round numbers. Values that are not finite leave a gap.
/// \param name  of the loss, for the title
std::string loss_curve_svg(const std::string& name, const std::vector<double>& values);

}  // namespace millrace::jobs
