#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder. Each adds one op per row of its table.

/// X op Y with broadcasting and attribute axis, result in the element type of X.
void add_elementwise_ops(OpRegistry& registry);
/// Comparisons, logical and bitwise ops.
void add_compare_ops(OpRegistry& registry);
/// Several elementwise ops in one loop.
OpDef elementwise_chain();
/// X - Y of equal shapes.
OpDef minus();
/// equal_all, allclose.
void add_all_equal_ops(OpRegistry& registry);

}  // namespace millrace::ops
