#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "executor/step.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// Runs the steps of a block whose processor device has a GPU attached (kernels/gpu/context.h).
///
/// A step with a GPU kernel gets its inputs moved into device memory, where they stay, and makes
/// its outputs there. One without runs on the processor: it gets copies of the inputs that are on
/// the device; its own outputs move there when a GPU kernel reads them. A GPU kernel that refuses
/// what it finds leaves its step to the processor from then on. Where steps run and what they
/// copied can be read off.
///
/// Source: docs/decisions/0017-gpu.md. Thread-safety: one thread at a time.
class GpuSteps {
 public:
  /// Where a step runs.
  struct Placed {
    kernels::Kernel kernel;  ///< on the GPU; empty: the step runs on the processor
    std::string reason;      ///< why it runs there; empty for control ops, which always do
    gpu::Traffic copied;     ///< in the latest run
  };
  /// How many steps run where, control ops left out.
  struct Counts {
    int64_t on_gpu = 0;
    int64_t on_cpu = 0;
  };

  /// Makes the GPU kernels. \param steps  of the block; compiled for the device
  GpuSteps(std::shared_ptr<gpu::Context> context, llvm::ArrayRef<Step> steps,
           kernels::CpuDevice& device);
  GpuSteps(const GpuSteps&) = delete;
  GpuSteps& operator=(const GpuSteps&) = delete;

  /// Runs a step that is no control op. \param index  of the step in its block
  /// \param table    values of the block; entries behind the names are spares
  /// \param watched  somebody looks at times or values behind each step: queued work is waited for
  /// \param changed  set to true if shape inference ran
  /// Errors: those of kernels; kResource for device memory.
  Status run(size_t index, Step& step, llvm::ArrayRef<Value*> table, kernels::CpuDevice& device,
             bool watched, bool& changed);

  [[nodiscard]] const Placed& placed(size_t index) const { return placed_[index]; }
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] gpu::Context& context() const { return *context_; }

 private:
  Status run_on_gpu(const Placed& placed, Step& step, Value* const* table,
                    kernels::CpuDevice& device, bool& changed);
  Status run_on_cpu(Step& step, llvm::ArrayRef<Value*> table, kernels::CpuDevice& device,
                    bool& changed);

  std::shared_ptr<gpu::Context> context_;
  std::vector<Placed> placed_;
  std::vector<bool> is_control_;
  std::vector<llvm::StringRef> names_;  ///< by table index, of the program
  std::vector<Value*> table_;           ///< of a step on the processor: copies in place of inputs
};

}  // namespace millrace::executor
