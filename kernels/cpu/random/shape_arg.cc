#include "kernels/cpu/random/shape_arg.h"

#include "ops/infer_context.h"

namespace millrace::kernels {

ShapeArg::ShapeArg(const KernelSetup& op) : dtype_(op.dtype_attr("dtype")) {
  if (op.def().find_attr("input_dim_idx") != nullptr) {
    shape_ = IntList(op, "shape");
    like_ = op.input("Input");
    like_dim_ = op.attr<int64_t>("input_dim_idx");
    own_dim_ = op.attr<int64_t>("output_dim_idx");
  } else {
    shape_ = IntList(op, "shape", "ShapeTensor", "ShapeTensorList");
  }
}

Status ShapeArg::size(const KernelContext& ctx, Tensor& out) const {
  MILLRACE_ASSIGN_OR_RETURN(Ints dims, shape_.read(ctx));
  if (like_) {
    const Tensor& like = ctx.in(like_);
    if (own_dim_ < 0 || like_dim_ < 0 || own_dim_ >= static_cast<int64_t>(dims.size()) ||
        like_dim_ >= static_cast<int64_t>(like.rank()))
      return ctx.error("dim {} of Input {} cannot be dim {} of {}", like_dim_, describe(like),
                       own_dim_, ops::dims_text(dims));
    // rows of a LoD tensor do not count, its sequences do
    dims[static_cast<size_t>(own_dim_)] = like_dim_ == 0 && !like.lod().empty()
                                              ? like.lod().sequences(like.lod().size() - 1)
                                              : like.dim(like_dim_);
  }
  for (const int64_t dim : dims) {
    if (dim < 0) return ctx.error("the shape is {}, expected sizes", ops::dims_text(dims));
  }
  return size_output(out, dtype_, dims);
}

}  // namespace millrace::kernels
