#pragma once

#include <string>
#include <vector>

#include "executor/compiled_ops/control.h"
#include "framework/tensor/tensor.h"

namespace millrace::executor {

/// Time step t of a sequence whose first dim is time: a view without that dim.
Tensor time_step(const Tensor& sequence, int64_t t);

/// Creates recurrent_grad; see recurrent_grad.cc.
StatusOr<Control> make_recurrent_grad(const kernels::KernelSetup& setup, BlockRunner& runner);

}  // namespace millrace::executor
