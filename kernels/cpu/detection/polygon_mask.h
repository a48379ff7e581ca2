#pragma once

#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"

namespace millrace::kernels {

/// Draws the interior of at least one of the polygons into a mask of side * side pixels that covers
/// a box: 1 inside, 0 outside, row by row. The area that a polygon winds around twice is outside.
///
/// The outline is drawn in a grid five times as fine. The pixels between two crossings of a
/// column's centre are inside, as in the masks of the COCO data set.
/// \param polygons  x and y of the points of each; at least one point
/// \param box       left, top, right, bottom; treated as at least one pixel wide and high
/// Errors: a point that is not finite, or more than 10^6 masks away from the box.
template <typename T>
Status draw_polygons(llvm::ArrayRef<llvm::ArrayRef<T>> polygons, const T* box, int64_t side,
                     int32_t* mask);

}  // namespace millrace::kernels
