#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/grad.h"

namespace millrace::ops {

/// Result of a gradient rule that yields a single op.
inline std::vector<GradOp> one_grad_op(GradOp op) {
  std::vector<GradOp> ops;
  ops.push_back(std::move(op));
  return ops;
}

/// Adds output `slot`@GRAD for each input slot whose gradient is wanted. \returns false if none is
inline bool add_wanted_grads(const GradContext& context, std::initializer_list<const char*> slots,
                             GradOp& op) {
  bool any = false;
  for (const char* const slot : slots) {
    std::vector<std::string> wanted = context.input_grad(slot);
    if (wanted.empty()) continue;
    any = true;
    op.output(std::string(slot) + "@GRAD", std::move(wanted));
  }
  return any;
}

/// An op of the type with input X = Out@GRAD and output Out = X@GRAD: the gradient of an op that
/// has only these slots and is linear. \returns none if no gradient of X is wanted
inline std::optional<GradOp> grad_op_of_x(const GradContext& context, llvm::StringRef type) {
  std::vector<std::string> wanted = context.input_grad("X");
  if (wanted.empty()) return std::nullopt;
  GradOp op(type);
  op.input("X", context.output_grad("Out")).output("Out", std::move(wanted));
  return op;
}

/// Copies all attributes of the forward op to the gradient op.
inline void copy_attrs(const GradContext& context, GradOp& op) {
  const Op& forward = context.forward();
  for (const Attr& attr : forward.attrs()) op.attr(forward.name_of(attr.name), attr.value);
}

}  // namespace millrace::ops
