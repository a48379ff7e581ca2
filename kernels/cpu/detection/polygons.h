#pragma once

#include <cstdint>

namespace millrace::kernels {

/// Area of the intersection of two polygons / area of their union; 0 where one is empty. Polygons
/// need not be convex; where an outline crosses itself, what it goes round twice is outside, but
/// counts for its own area as the shoelace formula has it.
/// \param width  numbers of each polygon: x and y of its corners, at most 16 corners
template <typename T>
T polygon_overlap(const T* a, const T* b, int64_t width);

}  // namespace millrace::kernels
