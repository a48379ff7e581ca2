#pragma once

#include "executor/compiled_ops/control.h"

namespace millrace::executor {

/// Creates while_grad; see while_grad.cc.
StatusOr<Control> make_while_grad(const kernels::KernelSetup& setup, BlockRunner& runner);

}  // namespace millrace::executor
