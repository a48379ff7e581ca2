#pragma once

#include <cstdint>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Class numbers of any integer type as i64: the tensor's own memory, or scratch memory of the
/// device. Each is in [0, classes) or is ignored. Errors: kExecution for another number of labels
/// or a label out of range, naming it and its position; kResource.
/// \param slot  of the scratch memory
StatusOr<const int64_t*> class_labels(const KernelContext& ctx, const Tensor& label, int64_t count,
                                      int64_t classes, int64_t ignored, int slot);

}  // namespace millrace::kernels
