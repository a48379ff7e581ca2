#pragma once

#include <string>

#include "executor/observer.h"

namespace millrace::executor {

/// Ends the run at the first op that writes a NaN or an infinity, naming op, var, counts and the
/// range of the other values. Dense tensors and selected rows of f16, bf16, f32 and f64.
/// Source: spec/executor.md section 7 (FLAGS_check_nan_inf).
class NanCheck final : public OpObserver {
 public:
  Status after(const CompiledOp& compiled, Value* const* table) override;
};

/// Describes the non-finite elements of a tensor; "" if there are none or the dtype has none.
std::string describe_non_finite(const Tensor& tensor);

}  // namespace millrace::executor
