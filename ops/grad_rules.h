#pragma once

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

/// Copies all attributes of the forward op to the gradient op.
inline void copy_attrs(const GradContext& context, GradOp& op) {
  const Op& forward = context.forward();
  for (const Attr& attr : forward.attrs()) op.attr(forward.name_of(attr.name), attr.value);
}

}  // namespace millrace::ops
