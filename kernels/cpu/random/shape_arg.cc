#include "kernels/cpu/random/shape_arg.h"

#include <numeric>

#include <llvm/ADT/STLExtras.h>

#include "framework/program.h"
#include "ops/infer_context.h"

namespace millrace::kernels {

bool makes_rows(const KernelSetup& op) {
  for (const llvm::StringRef name : op.op().output("Out")) {
    const Var* const var = op.op().block().find_var_recursive(name);
    if (var != nullptr && var->kind() == VarKind::kSelectedRows) return true;
  }
  return false;
}

Status size_table(SelectedRows& table, DType dtype, llvm::ArrayRef<int64_t> dims) {
  MILLRACE_RETURN_IF_ERROR(size_output(table.value, dtype, dims));
  table.height = dims.empty() ? 0 : dims[0];
  table.rows.resize(static_cast<size_t>(table.height));
  std::iota(table.rows.begin(), table.rows.end(), int64_t{0});
  return Ok();
}

ShapeArg::ShapeArg(const KernelSetup& op) : dtype_(op.dtype_attr("dtype")), rows_(makes_rows(op)) {
  if (op.def().find_attr("input_dim_idx") != nullptr) {
    shape_ = IntList(op, "shape");
    like_ = op.input("Input");
    like_dim_ = op.attr<int64_t>("input_dim_idx");
    sequences_ = like_dim_ == 0 && op.op().type() == "fill_constant_batch_size_like";
    own_dim_ = op.attr<int64_t>("output_dim_idx");
  } else {
    shape_ = IntList(op, "shape", "ShapeTensor", "ShapeTensorList");
    // ops that draw numbers use the tensor only if the attribute leaves dims open
    const auto fixed = shape_.fixed();
    const bool is_open = fixed.empty() || llvm::any_of(fixed, [](int64_t dim) { return dim < 0; });
    const bool draws = op.op().type() != "fill_constant" && op.op().type() != "empty";
    if (draws && !is_open && op.inputs("ShapeTensorList").count == 0) shape_ = IntList(op, "shape");
  }
}

StatusOr<Tensor*> ShapeArg::create(const KernelContext& ctx, ArgIndex out) const {
  if (!rows_) {
    MILLRACE_RETURN_IF_ERROR(size(ctx, ctx.out(out)));
    return &ctx.out(out);
  }
  auto& table = ctx.out_value(out).as<SelectedRows>();
  MILLRACE_RETURN_IF_ERROR(size(ctx, table.value));
  const Dims dims(table.value.dims().begin(), table.value.dims().end());
  MILLRACE_RETURN_IF_ERROR(size_table(table, dtype_, dims));
  return &table.value;
}

Status ShapeArg::size(const KernelContext& ctx, Tensor& out) const {
  MILLRACE_ASSIGN_OR_RETURN(Ints dims, shape_.read(ctx));
  if (like_) {
    const Tensor& like = ctx.in(like_);
    if (own_dim_ < 0 || like_dim_ < 0 || own_dim_ >= static_cast<int64_t>(dims.size()) ||
        like_dim_ >= static_cast<int64_t>(like.rank()))
      return ctx.error("dim {} of Input {} cannot be dim {} of {}", like_dim_, describe(like),
                       own_dim_, ops::dims_text(dims));
    dims[static_cast<size_t>(own_dim_)] = sequences_ && !like.lod().empty()
                                              ? like.lod().sequences(like.lod().size() - 1)
                                              : like.dim(like_dim_);
  }
  for (const int64_t dim : dims) {
    if (dim < 0)
      return ctx.error("the shape is {}, expected dims of at least 0", ops::dims_text(dims));
  }
  return size_output(out, dtype_, dims);
}

}  // namespace millrace::kernels
