#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace scatter {
namespace {

// Updates has the dims of Ids or Index that number rows, then those of a row of X.
Status check_updates(const InferContext& ctx, Dims rows, llvm::ArrayRef<int64_t> row) {
  const VarMeta& updates = ctx.input("Updates");
  rows.append(row.begin(), row.end());
  if (!dims_known(updates) || same_dims(updates.dims, rows)) return Ok();
  return ctx.error("Updates must be {}, found {}", dims_text(rows), dims_text(updates.dims));
}

Status infer_scatter_op(InferContext& ctx) {
  const VarMeta& ids = ctx.input("Ids");
  const VarMeta& updates = ctx.input("Updates");
  if (ids.has_shape && ids.rank() > 1 && !(ids.rank() == 2 && dims_agree(ids.dims[1], 1))) {
    return ctx.error("Ids must have rank 0 or 1 or be [n, 1], found {}", dims_text(ids.dims));
  }
  if (ids.has_shape && ids.rank() > 0 && updates.has_shape && updates.rank() > 0 &&
      !dims_agree(ids.dims[0], updates.dims[0])) {
    return ctx.error("Updates {} must have one row for each of Ids {}", dims_text(updates.dims),
                     dims_text(ids.dims));
  }
  const VarMeta& x = ctx.input("X");
  if (x.has_shape && x.rank() > 0 && ids.has_shape && ids.rank() > 0)
    MILLRACE_RETURN_IF_ERROR(
        check_updates(ctx, {ids.dims[0]}, llvm::ArrayRef<int64_t>(x.dims).drop_front()));
  ctx.copy("X", "Out");
  return Ok();
}

// Updates has the leading dims of Index, then the dims of X that the coordinates do not cover.
Status infer_scatter_nd_add(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& index = ctx.input("Index");
  if (x.has_shape && index.has_shape && index.rank() > 0 &&
      index.dims.back() > static_cast<int64_t>(x.rank())) {
    return ctx.error("the last dim of Index {} must be at most the rank of X {}",
                     dims_text(index.dims), dims_text(x.dims));
  }
  if (x.has_shape && index.has_shape && index.rank() > 0 && index.dims.back() >= 0) {
    const llvm::ArrayRef<int64_t> all = index.dims;
    MILLRACE_RETURN_IF_ERROR(
        check_updates(ctx, Dims(all.drop_back().begin(), all.drop_back().end()),
                      llvm::ArrayRef<int64_t>(x.dims).drop_front(static_cast<size_t>(all.back()))));
  }
  ctx.copy("X", "Out");
  return Ok();
}

GradSpec grad(llvm::StringRef type, llvm::StringRef index) {
  GradSpec spec;
  spec.type = type;
  spec.inputs = {index, "Updates", "Out@GRAD"};
  spec.outputs = {"X@GRAD", "Updates@GRAD"};
  spec.shape_like = {{"X@GRAD", "Out@GRAD"}};
  return without_offsets(std::move(spec));
}

}  // namespace
}  // namespace scatter

/// scatter, scatter_nd_add
void add_tensor_scatter(OpRegistry& registry) {
  using namespace scatter;
  registry.add(OpDef("scatter")
                   .doc("X with Updates as rows Ids; if overwrite is false, rows with the same "
                        "id are summed")
                   .input("X", "at least one dim")
                   .input("Ids", "int32 or int64; rows, [n] or [n, 1]")
                   .input("Updates", "a row of X for each of Ids")
                   .output("Out", "shape, dtype and LoD of X")
                   .attr("overwrite", true,
                         "of rows with the same id the last one is used; false: they are summed")
                   .infer(infer_scatter_op)
                   .grad(grad("scatter_grad", "Ids"))
                   .inplace("X", "Out"));
  registry.add(OpDef("scatter_nd_add")
                   .doc("X with Updates added at the coordinates in the last dim of Index")
                   .input("X", "at least as many dims as the last dim of Index is large")
                   .input("Index", "int32 or int64; coordinates in the last dim")
                   .input("Updates", "leading dims of Index, then the rest of X")
                   .output("Out", "shape, dtype and LoD of X")
                   .infer(infer_scatter_nd_add)
                   .grad(grad("scatter_nd_add_grad", "Index"))
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
