#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/gpu/memory.h"
#include "kernels/gpu/shared_scratch.h"
#include "kernels/registry.h"

namespace millrace::gpu {

/// A device in use: its memory, and the kernels that run on it. Programs that run on one thread may
/// share a context. Thread-safety: as Device.
class Context {
 public:
  explicit Context(std::shared_ptr<Device> device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] Device& device() const { return memory_->device(); }
  [[nodiscard]] Memory& memory() const { return *memory_; }
  /// Kernels whose arguments are in the memory of the device. For calls that they do not support
  /// they return kUnimplemented before they change anything; the op then runs on the processor.
  [[nodiscard]] const kernels::KernelRegistry& kernels() const { return *kernels_; }
  /// Memory for intermediate results of all ops.
  [[nodiscard]] SharedScratch& scratch() { return scratch_; }

 private:
  std::shared_ptr<Memory> memory_;                          ///< of the device
  std::unique_ptr<const kernels::KernelRegistry> kernels_;  ///< kernels for it
  SharedScratch scratch_;                                   ///< of all programs
};

/// Attaches a GPU to a processor device, so that its programs can run on both. Must be called
/// before a program is compiled for the device.
void attach(kernels::CpuDevice& device, std::shared_ptr<Context> context);
/// The attached context; null if there is none.
const std::shared_ptr<Context>& context_of(kernels::CpuDevice& device);

}  // namespace millrace::gpu
