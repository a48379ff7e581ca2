#pragma once

#include <llvm/ADT/StringRef.h>

#include "framework/block.h"
#include "framework/op.h"

/// Declarations of the vars that gradient ops write.
namespace millrace::ops::backward {

/// Element type of the placeholder @EMPTY@ that the original's conditional_block_grad declares:
/// that of the last input whose gradient it replaces; f32 if there is none.
DType placeholder_dtype(const Op& op);

/// Declares a gradient in the block, with dtype, dims and kind of its forward var:
/// "grad/grad/x@GRAD@RENAME@block0@1" is like x. A gradient of an unknown var is f32 without dims.
void declare_like_forward(Block& block, llvm::StringRef grad);

/// Makes the outputs selected rows where the op is a sparse look-up's gradient, or a sum of
/// selected rows only.
void set_rows_kind(const Op& op, Block& block);

}  // namespace millrace::ops::backward
