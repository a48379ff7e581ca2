#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

/// reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod, reduce_all, reduce_any and
/// frobenius_norm.
void add_reductions(KernelRegistry& registry);
/// Their gradients.
void add_reduction_grads(KernelRegistry& registry);
/// mean, l1_norm, squared_l2_norm with their gradients, isfinite, isinf, isnan.
void add_totals(KernelRegistry& registry);
/// logsumexp with its gradient.
void add_logsumexp(KernelRegistry& registry);
/// norm and p_norm with their gradients.
void add_norms(KernelRegistry& registry);
/// cumsum and cumprod with their gradients.
void add_scans(KernelRegistry& registry);
void add_clip_by_norm(KernelRegistry& registry);
void add_histogram(KernelRegistry& registry);
/// segment_pool with its gradient.
void add_segment_pool(KernelRegistry& registry);

}  // namespace millrace::kernels
