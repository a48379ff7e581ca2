#pragma once

#include <llvm/Support/StringSaver.h>

#include "ops/op_def.h"

namespace millrace::ops {

/// Def of the gradient op that forward.grad_spec() describes.
///
/// Every forward input, forward output and output gradient becomes an optional input, every input
/// gradient an optional output (old programs leave some out, others pass more than is needed),
/// attributes are the forward ones, none of them required. Inference gives an input gradient the
/// shape of its forward var or of the var that shape_like names; where neither is at hand the
/// output keeps what its declaration says.
OpDef derive_grad_def(const OpDef& forward, llvm::StringSaver& saver);

}  // namespace millrace::ops
