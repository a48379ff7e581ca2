#pragma once

#include <string>
#include <vector>

#include "executor/custom_op.h"
#include "executor/standard_runtime.h"

namespace millrace::executor {

/// The standard runtime with user-defined ops added. Errors: kInvalidArgument for an op without a
/// name or function, or whose type already exists.
/// \param files_root, rings  as in standard_runtime()
StatusOr<std::shared_ptr<const Runtime>> runtime_with(const std::vector<CustomOp>& custom_ops,
                                                      const std::string& files_root,
                                                      std::shared_ptr<Rings> rings = nullptr);

}  // namespace millrace::executor
