#pragma once

#include <vector>

#include "kernels/cpu/reduce/reducer.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// The axes that an op reduces: from an attribute, or from tensors that replace it.
class ReduceAxes {
 public:
  /// \param attr  attribute with a list of axes; empty reduces all axes
  /// \param keep  attribute that keeps reduced dims with size 1
  ReduceAxes(const KernelSetup& op, const char* attr, const char* keep);

  /// Dims and loop nest of one run. Element i of the nest is element i of X; results are elements
  /// of Out.
  struct Plan {
    Dims out_dims;          ///< dims of Out
    ReduceNest nest;        ///< loops over X with the positions in Out
    int64_t out_count = 1;  ///< number of results
    /// Number of elements per result.
    [[nodiscard]] int64_t each() const { return out_count == 0 ? 0 : nest.count() / out_count; }
  };
  /// The plan for an X of these dims, cached until dims or axes change. Errors: an axis is out of
  /// range or is not an integer.
  StatusOr<const Plan*> plan(const KernelContext& ctx, llvm::ArrayRef<int64_t> x);
  /// Errors: the result has another number of elements than the plan.
  static Status check_result(const KernelContext& ctx, const Plan& plan, const Tensor& out) {
    if (out.numel() == plan.out_count) return Ok();
    return ctx.error("the result must have {} elements, found {}", plan.out_count, describe(out));
  }
  /// True if the axes come from tensors, so that shape inference did not know them.
  [[nodiscard]] bool from_tensors() const { return static_cast<bool>(tensor_) || list_.count > 0; }

 private:
  StatusOr<std::vector<int64_t>> read(const KernelContext& ctx) const;

  ArgIndex tensor_;
  ArgRange list_;
  std::vector<int64_t> fixed_;
  bool all_;  ///< attribute reduce_all
  bool keep_;
  bool filled_ = false;  ///< plan_ is for x_
  Dims x_;
  Plan plan_;  ///< of the last call
};

}  // namespace millrace::kernels
