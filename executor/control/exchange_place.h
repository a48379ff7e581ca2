#pragma once

#include <memory>
#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "executor/collective/collective_group.h"
#include "executor/collective/rings.h"
#include "executor/compiled_ops/control.h"
#include "framework/tensor/tensor.h"
#include "framework/tensor/value.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// Where an op of a ring exchanges a value: in host memory, or in the memory of the GPU that its
/// block runs on.
///
/// It is the GPU if the job requests it (Rings::use_devices()), the block runs on one, and the
/// value is a dense tensor of a type that GPUs exchange. All of that is equal on all ranks, so all
/// ranks choose alike, wherever the value currently is. Thread-safety: one thread.
class ExchangePlace {
 public:
  /// Errors: kInvalidArgument if the process has no peers; those of Rings.
  static StatusOr<ExchangePlace> find(const ControlContext& ctx, int32_t ring, const Value& value);

  [[nodiscard]] CollectiveGroup& group() const { return *group_; }

  /// Copies X to Out at this location; they may be the same value.
  /// \param holder  owner of device memory, for messages
  Status pass_on(const Value& x, Value& out, const std::string& holder) const;
  /// The tensor, or a copy of it at this location.
  StatusOr<const Tensor*> read(const Tensor& tensor, Tensor& copy, const std::string& holder) const;
  /// A tensor at this location, with undefined elements.
  [[nodiscard]] StatusOr<Tensor> make(DType dtype, llvm::ArrayRef<int64_t> dims,
                                      const std::string& holder) const;

 private:
  ExchangePlace(CollectiveGroup& group, kernels::CpuDevice& device)
      : group_(&group), device_(&device) {}

  CollectiveGroup* group_;
  kernels::CpuDevice* device_;
  std::shared_ptr<gpu::Context> gpu_;  ///< null: host memory
};

inline constexpr const char* kExchanges = "exchanges values with other ranks";

/// The rings of a process.
/// \param does  what the op does with them, for the message
/// Errors: kInvalidArgument if the process has no peers.
StatusOr<Rings*> find_rings(const BlockRunner& runner, const char* does);

/// Copies X to Out in host memory, unless they are the same value.
Status pass_on_plain(const Value& x, Value& out);

}  // namespace millrace::executor
