#pragma once

#include <cstdint>
#include <optional>

#include <llvm/ADT/StringRef.h>

#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::transpiler {

/// A product of rows with a matrix of f32 weights: mul, matmul and matmul_v2 without transposition
/// or scaling, or int8_fc.
struct WeightProduct {
  Op* op = nullptr;
  llvm::StringRef x;
  llvm::StringRef weights;
  llvm::StringRef out;
  int64_t row_dims = 1;  ///< leading dims of x that count the rows
  int64_t columns = 0;
};
/// nullopt for an op of another kind, or if the dims of its weights are not declared.
std::optional<WeightProduct> weight_product_of(Op& op, const ops::OpRegistry& registry);

}  // namespace millrace::transpiler
