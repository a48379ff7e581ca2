#pragma once

#include <cstdint>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Labels, lengths or offsets of any integer type as i64: the tensor's memory, or scratch memory of
/// the device. Errors: kExecution for floats, which would lose their fractions; kResource.
/// \param slot  slot of the scratch memory
StatusOr<const int64_t*> integers_of(const KernelContext& ctx, const Tensor& tensor, int slot);

/// Class numbers of any integer type as i64: the tensor's memory, or scratch memory of the device.
/// Each label must be in [0, classes) or equal the ignored label. Errors: kExecution for another
/// number of labels, or for a label out of range (the message has the label and its position);
/// kResource.
/// \param slot  slot of the scratch memory
StatusOr<const int64_t*> class_labels(const KernelContext& ctx, const Tensor& label, int64_t count,
                                      int64_t classes, int64_t ignored, int slot);

}  // namespace millrace::kernels
