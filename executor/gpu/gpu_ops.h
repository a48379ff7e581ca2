#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/StringRef.h>

#include "executor/compiled_ops/compiled_op.h"
#include "executor/gpu/control_numbers.h"
#include "executor/gpu/kept_places.h"
#include "executor/gpu/replays.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// Runs the ops of a block whose processor device has a GPU attached (kernels/gpu/context.h).
///
/// The inputs of an op with a GPU kernel are moved into device memory, where they stay; its
/// outputs are created there. An op without one runs on the CPU: it gets copies of inputs that are
/// on the device, and its outputs are moved there when a GPU kernel reads them. If a GPU kernel
/// does not support its input, the op runs on the CPU in all later runs. The object reports where
/// ops run and what they copied.
///
/// Source: docs/decisions/0017-gpu.md. Thread-safety: one thread at a time.
class GpuOps {
 public:
  /// The placement of an op.
  struct Placed {
    kernels::Kernel kernel;    ///< on the GPU; empty: the op runs on the CPU
    std::string reason;        ///< why it runs on the CPU; empty for control ops, which always do
    bool is_exchange = false;  ///< between devices; finds its values wherever they are
    bool is_number = false;    ///< control flow reads what it computes (ControlNumbers)
    gpu::Traffic copied;       ///< bytes copied in the latest run
    bool steady = false;       ///< the latest run neither copied nor allocated
  };
  /// Number of ops on GPU and CPU, without control ops, exchanges between devices, and ops that
  /// compute a number that control flow reads.
  struct Counts {
    int64_t on_gpu = 0;
    int64_t on_cpu = 0;
  };

  /// Makes the GPU kernels. \param compiled_ops  of the block; compiled for the CPU device
  GpuOps(std::shared_ptr<gpu::Context> context, llvm::ArrayRef<CompiledOp> compiled_ops,
         kernels::CpuDevice& device, const ops::OpRegistry& schemas, const ControlNumbers& numbers);
  GpuOps(const GpuOps&) = delete;
  GpuOps& operator=(const GpuOps&) = delete;

  /// Runs an op that is not a control op.
  /// \param index    of the op in its block
  /// \param table    values of the block; entries after the named ones are spares
  /// \param watched  an observer needs times or values after each op: waits for queued work
  /// \param changed  set to true if shape inference ran
  /// Errors: those of kernels; kResource for device memory.
  Status run(size_t index, CompiledOp& compiled, llvm::ArrayRef<Value*> table,
             kernels::CpuDevice& device, bool watched, bool& changed);

  /// True for ops that exchange values with servers, heter workers or ranks.
  static bool is_transfer(const Op& op);
  /// Runs such an op. It finds inputs in process memory, unless it accepts them on the device:
  /// copies, which stay until the op runs again, because an op may send them later. What arrives in
  /// process memory is copied to where the outputs were in device memory; a later barrier op may
  /// receive it.
  /// \param run  the op, given the table of values that it uses
  /// Errors: those of the op; kResource, kExecution.
  Status run_transfer(const CompiledOp& compiled, llvm::ArrayRef<Value*> table,
                      llvm::function_ref<Status(Value* const* table)> run);

  /// Recorded work of several ops.
  [[nodiscard]] Replays& replays() { return replays_; }
  [[nodiscard]] const Replays& replays() const { return replays_; }
  /// True if the op runs on the GPU, and copied and allocated nothing in its latest run.
  [[nodiscard]] bool was_steady(size_t index) const {
    return placed_[index].kernel != nullptr && placed_[index].steady;
  }

  [[nodiscard]] const Placed& placed(size_t index) const { return placed_[index]; }
  [[nodiscard]] Counts counts() const;
  /// "163 ops on the gpu, 160 of them recorded, 2 on the cpu; copied 1 to the gpu (4096 bytes),
  /// ...", for logs.
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] gpu::Context& context() const { return *context_; }

 private:
  Status run_on_gpu(const Placed& placed, CompiledOp& compiled, Value* const* table,
                    kernels::CpuDevice& device, bool& changed);
  Status run_on_cpu(CompiledOp& compiled, llvm::ArrayRef<Value*> table, kernels::CpuDevice& device,
                    bool& changed);
  /// Runs an op that moves its values itself.
  static Status run_exchange(CompiledOp& compiled, Value* const* table, kernels::CpuDevice& device,
                             bool& changed);

  std::shared_ptr<gpu::Context> context_;
  std::vector<Placed> placed_;
  std::vector<bool> is_control_;
  std::vector<llvm::StringRef> names_;  ///< by table index
  std::vector<Value*> table_;           ///< of an op on the CPU: copies instead of inputs
  llvm::DenseMap<int32_t, std::unique_ptr<Value>> sent_;  ///< copies that transfers read
  KeptPlaces received_;                                   ///< where their outputs are
  KeptPlaces computed_;  ///< where outputs of ops on the CPU were when a GPU kernel read them
  Replays replays_;      ///< before the context, whose memory they refer to
};

}  // namespace millrace::executor
