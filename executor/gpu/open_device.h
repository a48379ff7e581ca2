#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// What products on a device may do with their factors.
struct ProductRounding {
  bool tf32 = false;  ///< GPUs: products and convolutions round them to 10 bits of mantissa
  /// GPUs: products of matrices round them to bfloat16. No effect for "cpu", where
  /// ExecutorOptions::bf16_products rewrites the program instead.
  bool bf16 = false;
};

/// Opens the device that programs run on, by its name in options: "cpu" (null is returned), "gpu:N"
/// for the GPU with number N ("gpu": 0), or "gpu:emulated", which runs the GPU kernels in the
/// memory of the process, for tests.
///
/// Errors: kInvalidArgument for another name, or for a rounding that the device does not have;
/// kUnimplemented if this build has no CUDA, or the driver or the GPU is missing; kResource.
StatusOr<std::shared_ptr<gpu::Context>> open_device(const std::string& name,
                                                    const ProductRounding& rounding);

/// Number of devices that a name means: "gpu:0,1" means two; every other name one.
int count_devices(const std::string& name);

/// Opens several GPUs, "gpu:0,1" or "gpu:emulated,emulated", in this order; one for a name of
/// open_device(), none for "cpu". Errors: as above, also kInvalidArgument for a GPU that is named
/// twice.
StatusOr<std::vector<std::shared_ptr<gpu::Context>>> open_devices(const std::string& name,
                                                                  const ProductRounding& rounding);

}  // namespace millrace::executor
