#pragma once

#include <memory>
#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "executor/collective/collective_group.h"
#include "executor/collective/rings.h"
#include "executor/control.h"
#include "framework/tensor/tensor.h"
#include "framework/tensor/value.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// Where an op of a ring exchanges a value: in the memory of the process, or in that of the GPU
/// that its block runs on.
///
/// It is the GPU where the job says so (Rings::use_devices()), the block runs on one, and the value
/// is a dense tensor of a type that GPUs exchange. All of that is the same on all ranks, so all go
/// the same way, wherever the value happens to lie. Thread-safety: one thread.
class ExchangePlace {
 public:
  /// Errors: kInvalidArgument where the process is alone; those of Rings.
  static StatusOr<ExchangePlace> find(const ControlContext& ctx, int32_t ring, const Value& value);

  [[nodiscard]] CollectiveGroup& group() const { return *group_; }

  /// Out becomes X, here; they may be one. \param holder  of device memory, for messages
  Status pass_on(const Value& x, Value& out, const std::string& holder) const;
  /// The tensor, or a copy of it that is here.
  StatusOr<const Tensor*> read(const Tensor& tensor, Tensor& copy, const std::string& holder) const;
  /// A tensor that is here, with undefined elements.
  [[nodiscard]] StatusOr<Tensor> make(DType dtype, llvm::ArrayRef<int64_t> dims,
                                      const std::string& holder) const;

 private:
  ExchangePlace(CollectiveGroup& group, kernels::CpuDevice& device)
      : group_(&group), device_(&device) {}

  CollectiveGroup* group_;
  kernels::CpuDevice* device_;
  std::shared_ptr<gpu::Context> gpu_;  ///< null: the memory of the process
};

inline constexpr const char* kExchanges = "exchanges values with other ranks";

/// The rings of a process. \param does  what the op does with them, for the message
/// Errors: kInvalidArgument where the process is alone.
StatusOr<Rings*> find_rings(const BlockRunner& runner, const char* does);

/// Out becomes X, in the memory of the process unless they are one.
Status pass_on_plain(const Value& x, Value& out);

}  // namespace millrace::executor
