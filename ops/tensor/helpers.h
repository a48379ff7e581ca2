#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "ops/infer_context.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// Meta of x with other dims. The LoD is kept only if the number of rows is unchanged.
VarMeta keep_lod_of_same_rows(const VarMeta& x, llvm::ArrayRef<int64_t> dims);
/// Meta of a dense tensor of unknown rank with the element type of x.
VarMeta unknown_like(const VarMeta& x);

/// Sets output XShape to 0 followed by the dims of x; its gradient op reads the shape of x from it.
void set_xshape(InferContext& ctx, const VarMeta& x);
/// Inference of a gradient op that reads the shape of X from XShape, or from X if the op has it.
Status infer_from_xshape(InferContext& ctx);
Status infer_from_xshape(InferContext& ctx, bool with_offsets);

/// Gradient rule of an op whose gradient op reads the given inputs and Out@GRAD, and writes X@GRAD
/// with the shape of X.
GradSpec grad_of_x(llvm::StringRef type, std::vector<llvm::StringRef> inputs);
/// As grad_of_x(), for a gradient op that does not read X; X@GRAD has the shape of Out@GRAD.
GradSpec grad_like_out(llvm::StringRef type);
/// Gradient rule of an op whose gradient op reads XShape and the given slots.
GradSpec grad_by_xshape(llvm::StringRef type, std::vector<llvm::StringRef> more = {});

/// The dims in attribute 'shape' where input ShapeTensor has one var for each of them, else unknown
/// dims of that number; nullopt if the op lacks ShapeTensor, whose values are known at run time
/// only.
std::optional<Dims> dims_by_shape_tensor(const InferContext& ctx);

/// Length of a one-dimensional tensor that lists one number per dim; -1 if it is unknown or too
/// large for a rank.
int64_t list_length(const VarMeta& list);

}  // namespace millrace::ops
