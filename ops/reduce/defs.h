#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod, reduce_all, reduce_any and
/// frobenius_norm.
void add_reduce_ops(OpRegistry& registry);
/// mean, l1_norm, squared_l2_norm, and the checks of fluid 1.x with one bool as result.
void add_total_ops(OpRegistry& registry);
/// cumsum and cumprod.
void add_scan_ops(OpRegistry& registry);

OpDef clip_by_norm();
OpDef logsumexp();
OpDef norm();
OpDef p_norm();
OpDef histogram();
OpDef segment_pool();

}  // namespace millrace::ops
