#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

/// relu and other piecewise linear functions.
void add_rectifiers(KernelRegistry& registry);
/// sigmoid, tanh, gelu and other smooth functions.
void add_smooth_activations(KernelRegistry& registry);
/// Powers, logarithms, rounding, error and gamma functions.
void add_functions(KernelRegistry& registry);
void add_trigonometry(KernelRegistry& registry);
/// isfinite_v2, isinf_v2, isnan_v2.
void add_value_tests(KernelRegistry& registry);
void add_prelu(KernelRegistry& registry);
/// softmax and log_softmax.
void add_softmax(KernelRegistry& registry);

}  // namespace millrace::kernels
