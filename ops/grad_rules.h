#pragma once

#include <initializer_list>
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

/// Copies all attributes of the forward op to the gradient op.
inline void copy_attrs(const GradContext& context, GradOp& op) {
  const Op& forward = context.forward();
  for (const Attr& attr : forward.attrs()) op.attr(forward.name_of(attr.name), attr.value);
}

}  // namespace millrace::ops
