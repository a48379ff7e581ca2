#pragma once

#include <initializer_list>

#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// Wraps a kernel that computes images with the channels in dim 1, for an op whose images may have
/// them last: then the kernel gets transposed copies, and results are transposed back. Copies are
/// kept in device memory from run to run.
/// \param last    the images of the op have their channels last; false: returns the kernel
/// \param images  slots of the op, inputs and outputs, that hold images; other arguments are passed
///                on as they are
/// Errors: those of the kernel; kResource.
Kernel in_channels_first(const KernelSetup& op, bool last,
                         std::initializer_list<const char*> images, Kernel kernel);

}  // namespace millrace::gpu
