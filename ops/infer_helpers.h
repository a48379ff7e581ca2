#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "ops/infer_context.h"

namespace millrace::ops {

/// Shape inference that several folders share. All of it takes dims of -1 and vars whose shape is
/// unknown: a check that cannot be made passes, a result that cannot be known is -1 or has no
/// shape. Errors are kInvalidProgram and name slots and attributes; the caller adds the op's place.

/// True if the dims say something. Newer releases declare SELECTED_ROWS without dims, so those of a
/// SELECTED_ROWS var count only if there are any.
bool dims_known(const VarMeta& meta);

/// True for dims of the same rank that agree one by one (dims_agree()).
bool same_dims(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

/// Meta of a dense tensor.
VarMeta tensor_meta(DType dtype, llvm::ArrayRef<int64_t> dims, int32_t lod_level = 0);
/// Meta of a dense tensor of unknown rank.
VarMeta shapeless_meta(DType dtype);
/// As meta, with other dims.
VarMeta with_dims(const VarMeta& meta, llvm::ArrayRef<int64_t> dims);

/// Number of elements; unknown dims count as 1, an unknown shape as 1 element.
double element_count(const VarMeta& meta);
/// Cost of an op that does about one operation for each element of its largest input.
double elementwise_flops(const InferContext& ctx);

/// Out = meta of X. The whole inference of most unary ops.
Status infer_unary(InferContext& ctx);
/// Out = dims and LoD of X with another element type.
Status infer_unary_bool(InferContext& ctx);
/// Copies metas pairwise from an input slot with several vars to an output slot.
void copy_each(InferContext& ctx, llvm::StringRef input_slot, llvm::StringRef output_slot);

/// The element type that an attribute names by its number. Errors: the number names none.
StatusOr<DType> checked_dtype(const InferContext& ctx, llvm::StringRef attr);

/// Axis counted from the front. Errors: outside of [-rank, rank); a rank of 0 allows 0 and -1.
StatusOr<int64_t> checked_axis(const InferContext& ctx, llvm::StringRef attr, int64_t axis,
                               size_t rank);

/// Dims of slot_x op slot_y, where the smaller operand starts at dim axis of the larger one (-1:
/// ends with it) and dims of 1 are stretched. nullopt if one of the shapes is unknown.
/// Errors: axis out of range, dims that differ and are not 1.
/// Source: op specs of the elementwise family; trailing dims of 1 that stick out are dropped, as
/// programs of fluid 1.x need.
StatusOr<std::optional<Dims>> broadcast_dims(const InferContext& ctx, llvm::StringRef slot_x,
                                             llvm::StringRef slot_y, int64_t axis);
/// Sets slot_out to the broadcast shape with LoD of slot_x; without dtype the element type is that
/// of slot_x.
Status infer_broadcast(InferContext& ctx, llvm::StringRef slot_x, llvm::StringRef slot_y,
                       llvm::StringRef slot_out, int64_t axis,
                       std::optional<DType> dtype = std::nullopt);

/// Dims after reducing the given axes; all of them if the list is empty, names every axis, or all
/// is true. Errors: an axis out of range; attr names the attribute in the message.
StatusOr<Dims> reduced_dims(const InferContext& ctx, llvm::StringRef attr,
                            llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> axes, bool all,
                            bool keep_dims);

/// Errors: both shapes are known and differ in rank or in a known dim.
Status check_same_dims(const InferContext& ctx, llvm::StringRef slot_a, llvm::StringRef slot_b,
                       size_t index = 0);
/// As check_same_dims, but shapes with the same number of elements pass, which old programs have
/// ([n, 1] against [n]).
Status check_same_count(const InferContext& ctx, llvm::StringRef slot_a, llvm::StringRef slot_b,
                        size_t index = 0);
/// Errors: the rank is known and outside of [min_rank, max_rank].
Status check_rank(const InferContext& ctx, llvm::StringRef slot, size_t min_rank, size_t max_rank);
/// Errors: the number of elements is known and is not count.
Status check_elements(const InferContext& ctx, llvm::StringRef slot, int64_t count,
                      size_t index = 0);

/// Shape that creating ops take from attribute "shape", or from ShapeTensor (its length gives the
/// rank) or ShapeTensorList (attribute values stand for constants) where the op has them. nullopt
/// if not even the rank is known. Errors: a dim below -1 where no tensor supplies it.
StatusOr<std::optional<Dims>> shape_from_attr(const InferContext& ctx);

}  // namespace millrace::ops
