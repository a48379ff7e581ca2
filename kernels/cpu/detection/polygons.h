#pragma once

#include <cstdint>

namespace millrace::kernels {

/// Area of the intersection of two polygons / area of their union; 0 if one is empty. Polygons need
/// not be convex. If an outline crosses itself, the area it winds around twice is outside for the
/// intersection, but the area of the polygon itself follows from the shoelace formula.
/// \param width  numbers per polygon: x and y of its corners, at most 16 corners
template <typename T>
T polygon_overlap(const T* a, const T* b, int64_t width);

}  // namespace millrace::kernels
