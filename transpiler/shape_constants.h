#pragma once

#include <cstdint>
#include <optional>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/program.h"

namespace millrace::transpiler {

/// Elements of a small integer tensor as far as known before a run.
struct ShapeConstant {
  DType dtype = DType::kInt64;                          ///< kInt32 or kInt64
  llvm::SmallVector<std::optional<int64_t>, 4> values;  ///< row major; nullopt: known at run time

  [[nodiscard]] bool complete() const;
};

/// Maximum number of elements of a tracked tensor; shapes are shorter.
inline constexpr int64_t kMaxShapeElements = 64;

/// What is known about the integer tensors of a program that describe shapes.
///
/// A name counts as constant if exactly one op of the program writes it, and it is not persistable.
/// Declared dims are trusted, except dim 0 of a tensor with LoD.
class ShapeConstants {
 public:
  explicit ShapeConstants(const Program& program);

  /// Computes the output of one op from what is known about its inputs, and stores it. Ops must be
  /// passed in block order. Null if the op type is not supported or nothing is known about the
  /// output.
  const ShapeConstant* evaluate(const Op& op);
  /// What is known about a name; null if nothing is.
  [[nodiscard]] const ShapeConstant* find(NameId name) const;

 private:
  llvm::DenseMap<NameId, int> writes_;
  llvm::DenseMap<NameId, ShapeConstant> constants_;
};

}  // namespace millrace::transpiler
