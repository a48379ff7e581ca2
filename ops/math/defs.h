#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op definitions of this folder, one per file; a family adds several ops.
/// addmm, bmm, dot, mv: products of matrices and vectors of fixed rank.
void add_small_product_ops(OpRegistry& registry);
OpDef cast();
OpDef clip();
OpDef cos_sim();
OpDef cross();
OpDef dist();
OpDef kron();
OpDef matmul();
OpDef matmul_v2();
OpDef mul();
OpDef summed_mul_grad();
OpDef pow();
OpDef scale();
OpDef sum();
/// inverse, cholesky
void add_linear_algebra_ops(OpRegistry& registry);

}  // namespace millrace::ops
