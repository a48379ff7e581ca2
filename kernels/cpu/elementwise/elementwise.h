#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

/// Sum, difference, product and quotient with their gradients, and minus.
void add_arithmetic(KernelRegistry& registry);
/// Elementwise ops fused into one loop.
void add_chain(KernelRegistry& registry);
/// Maxima and minima with their gradients.
void add_extremes(KernelRegistry& registry);
/// Powers with their gradient, remainders, and quotients rounded down.
void add_powers(KernelRegistry& registry);
/// equal, less_than and the like.
void add_comparisons(KernelRegistry& registry);
/// logical_* and bitwise_*.
void add_bit_ops(KernelRegistry& registry);
/// equal_all, allclose.
void add_all_equal(KernelRegistry& registry);

}  // namespace millrace::kernels
