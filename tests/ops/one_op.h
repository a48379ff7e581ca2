#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/op_attrs.h"
#include "framework/program.h"
#include "ops/infer_context.h"

namespace millrace::ops {

inline constexpr DType kF32 = DType::kFloat32;
inline constexpr DType kI32 = DType::kInt32;
inline constexpr DType kI64 = DType::kInt64;

/// A program of one op over vars of given shapes, for table-driven tests of schemas. Vars are named
/// after slot and position: X0, X1, Out0.
class OneOp {
 public:
  explicit OneOp(llvm::StringRef type);

  /// Adds a var to an input slot.
  OneOp& in(llvm::StringRef slot, const Dims& dims, DType dtype = DType::kFloat32,
            int32_t lod_level = 0);
  /// Adds a var of unknown shape to an input slot.
  OneOp& in_unknown(llvm::StringRef slot);
  /// Adds count vars without a shape to an output slot.
  OneOp& out(llvm::StringRef slot, int count = 1);
  template <typename T>
  OneOp& attr(llvm::StringRef name, T value) {
    op_->set_attr(name, make_attr(std::move(value)));
    return *this;
  }
  /// A list of integers, as in most list attributes.
  OneOp& ints(llvm::StringRef name, std::vector<int32_t> value) {
    return attr(name, std::move(value));
  }

  /// Runs inference. \returns "Out0 f32[2, 3]; Y0 ?" for all outputs in order, with "lod1" after a
  /// shape of one LoD level, or "error: ..." with the message
  std::string infer();
  /// The gradient ops: "x_grad(X=X0; Out@GRAD=Out0@GRAD -> X@GRAD=X0@GRAD)", one after another;
  /// inputs and outputs in alphabetical order. Gradients of vars in no_grad are not requested.
  std::string grad(const std::vector<std::string>& no_grad = {});

 private:
  void add(bool is_output, llvm::StringRef slot, VarSpec spec);

  std::unique_ptr<Program> program_;
  Op* op_;
  std::vector<std::string> outputs_;
};

/// An op with an input X of these dims and an output Out.
OneOp x_out(llvm::StringRef type, const Dims& dims);

}  // namespace millrace::ops
