#pragma once

#include <llvm/Support/StringSaver.h>

#include "ops/op_def.h"

namespace millrace::ops {

/// Builds the def of the gradient op that forward.grad_spec() describes.
///
/// Every forward input, forward output and output gradient becomes an optional input, and every
/// input gradient an optional output, because old programs leave some out and others pass more than
/// is needed. The attributes are those of the forward op; none is required. Inference sets the
/// shape of an input gradient to that of its forward var, or of the var that shape_like names. If
/// the op has neither, the output keeps its declared shape.
OpDef derive_grad_def(const OpDef& forward, llvm::StringSaver& saver);

}  // namespace millrace::ops
