#pragma once

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/cpu/layouts.h"

namespace millrace::kernels {

/// Marks a row-major tensor, so that a kernel that made something of its elements can see whether
/// they have changed since: every op that accesses the tensor without knowing the mark removes it.
/// The mark is a private layout; ops that use it are in keeps_private_layouts(). A mark of another
/// kernel stays, so that several may make something of one tensor.
/// A tensor in another layout is converted to row-major order.
/// \returns the mark; the elements are unchanged as long as Tensor::layout() is that. Errors:
/// kResource, those of the conversion.
StatusOr<LayoutPtr> mark_seen(Tensor& tensor);

}  // namespace millrace::kernels
