#pragma once

#include "executor/compiled_ops/control.h"

namespace millrace::executor {

/// Creates recurrent_grad; see recurrent_grad.cc.
StatusOr<Control> make_recurrent_grad(const kernels::KernelSetup& setup, BlockRunner& runner);

}  // namespace millrace::executor
