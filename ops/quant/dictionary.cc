#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Values stored as bytes: indices into a dictionary, and rows of a table with their range.
namespace millrace::ops {
namespace {

constexpr int64_t kRangeColumns = 2;  // smallest and largest value of a row
constexpr int64_t kBytesOfColumn = 4;

Status infer_dequantize_log(InferContext& ctx) {
  VarMeta out = ctx.input("X");
  out.dtype = DType::kFloat32;
  ctx.set_output("Out", without_offsets(std::move(out)));
  return Ok();
}

Status infer_lookup_table_dequant(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "W", 2, 2));
  const VarMeta& table = ctx.input("W");
  const VarMeta& ids = ctx.input("Ids");
  if (!dims_known(table) || !dims_known(ids)) return Ok();
  if (table.dims[1] >= 0 && table.dims[1] < kRangeColumns)
    return ctx.error("'W' has shape {}, expected at least {} columns", dims_text(table.dims),
                     kRangeColumns);
  Dims dims = ids.dims;
  if (dims.empty() || !dims_agree(dims.back(), 1))
    return ctx.error("'Ids' has shape {}, expected a last dim of 1", dims_text(ids.dims));
  dims.back() = table.dims[1] < 0 ? -1 : (table.dims[1] - kRangeColumns) * kBytesOfColumn;
  ctx.set_output("Out", tensor_with_lod_of(ids, DType::kFloat32, dims));
  return Ok();
}

}  // namespace

void add_quant_dictionary(OpRegistry& registry) {
  registry.add(OpDef("dequantize_log")
                   .doc("Dict[X] for X of at least 0, -Dict[X + 128] else")
                   .input("X", "int8")
                   .input("Dict", "f32 [128]")
                   .output("Out", "f32, shape of X")
                   .infer(infer_dequantize_log));
  registry.add(OpDef("lookup_table_dequant")
                   .doc("rows of a table by id, whose elements are bytes over the range of the row")
                   .input("W", "f32 [rows, 2 + width / 4]: smallest, largest, then four bytes each")
                   .input("Ids", "int64, last dim 1")
                   .output("Out", "dims of Ids without the last one, then the width")
                   .attr("padding_idx", int64_t{-1}, "id whose row counts as zero; -1: none")
                   .infer(infer_lookup_table_dequant));
}

}  // namespace millrace::ops
