#pragma once

#include <string>
#include <vector>

#include "executor/custom_op.h"
#include "executor/runtime.h"

namespace millrace::executor {

/// The standard runtime with ops of the user's own. Errors: kInvalidArgument for an op without name
/// or function, or of a type that there is already.
/// \param files_root  as in standard_runtime()
StatusOr<std::shared_ptr<const Runtime>> runtime_with(const std::vector<CustomOp>& custom_ops,
                                                      const std::string& files_root);

}  // namespace millrace::executor
