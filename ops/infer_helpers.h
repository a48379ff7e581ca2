#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "ops/infer_context.h"

namespace millrace::ops {

/// Shape inference that several folders share. All functions accept dims of -1 and vars of unknown
/// shape: a check that needs an unknown value passes, and an unknown result is -1 or has no shape.
/// Errors are kInvalidProgram and name slots and attributes; the caller adds the op's location.

/// True if the rank is known. Newer releases declare SELECTED_ROWS without dims, so a SELECTED_ROWS
/// var with no dims counts as unknown.
bool dims_known(const VarMeta& meta);

/// True for dims of the same rank that agree in every position (dims_agree()).
bool same_dims(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

/// The dims at position `start` of `rank` dims, with 1 elsewhere, as a broadcast needs them.
/// Trailing dims of 1 that exceed the rank are dropped; nullopt if the others do not fit.
std::optional<Dims> aligned_dims(llvm::ArrayRef<int64_t> dims, size_t start, size_t rank);

/// Meta of a dense tensor.
VarMeta tensor_meta(DType dtype, llvm::ArrayRef<int64_t> dims, int32_t lod_level = 0);
/// Meta of a dense tensor of unknown rank.
VarMeta shapeless_meta(DType dtype);
/// A copy of meta with other dims.
VarMeta with_dims(const VarMeta& meta, llvm::ArrayRef<int64_t> dims);

/// Number of elements; unknown dims count as 1, an unknown shape as 1 element.
double element_count(const VarMeta& meta);
/// Cost of an op that does about one operation per element of its largest input.
double elementwise_flops(const InferContext& ctx);

/// Copies the meta of X to Out. This is the complete inference of most unary ops.
Status infer_unary(InferContext& ctx);
/// Gives Out the dims and LoD of X, with element type bool.
Status infer_unary_bool(InferContext& ctx);
/// The number of arguments of the slot that has fewer; 0 if the op lacks a slot. Positions count,
/// not vars: one with the placeholder @EMPTY@ counts, too.
size_t paired_args(const InferContext& ctx, llvm::StringRef input_slot,
                   llvm::StringRef output_slot);
/// Copies metas pairwise from an input slot with several vars to an output slot.
void copy_each(InferContext& ctx, llvm::StringRef input_slot, llvm::StringRef output_slot);

/// The element type whose VarType number an attribute holds. Errors: not the number of an element
/// type.
StatusOr<DType> checked_dtype(const InferContext& ctx, llvm::StringRef attr);

/// The axis as a number in [0, rank). Errors: outside of [-rank, rank); rank 0 allows 0 and -1.
/// \param attr  attribute name for the message
StatusOr<int64_t> checked_axis(const InferContext& ctx, llvm::StringRef attr, int64_t axis,
                               size_t rank);

/// Result dims of a broadcast elementwise op. The smaller operand is aligned to dim `axis` of the
/// larger one (-1: to its last dims), and dims of 1 are repeated. nullopt if one of the shapes is
/// unknown.
/// Errors: axis out of range; dims that differ and are not 1.
/// Source: op specs of the elementwise family; trailing dims of 1 beyond the larger operand are
/// dropped, as programs of fluid 1.x need.
StatusOr<std::optional<Dims>> broadcast_dims(const InferContext& ctx, llvm::StringRef slot_x,
                                             llvm::StringRef slot_y, int64_t axis);
/// Sets slot_out to the broadcast shape with the LoD of slot_x. The element type is dtype, or that
/// of slot_x if dtype is nullopt. Errors: as broadcast_dims().
Status infer_broadcast(InferContext& ctx, llvm::StringRef slot_x, llvm::StringRef slot_y,
                       llvm::StringRef slot_out, int64_t axis,
                       std::optional<DType> dtype = std::nullopt);

/// Dims after reducing the given axes; all axes if the list is empty or `all` is true. Errors: an
/// axis out of range.
/// \param attr  attribute name for the message
StatusOr<Dims> reduced_dims(const InferContext& ctx, llvm::StringRef attr,
                            llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> axes, bool all,
                            bool keep_dims);

/// Sets Out to X reduced over axes, for ops with attributes "axis" and "keepdim". Errors: as
/// reduced_dims().
Status infer_over_axes(InferContext& ctx, llvm::ArrayRef<int64_t> axes, bool all);

/// Errors: both shapes are known and differ in rank or in a known dim.
Status check_same_dims(const InferContext& ctx, llvm::StringRef slot_a, llvm::StringRef slot_b,
                       size_t index = 0);
/// As check_same_dims(), but shapes that differ in dims of 1 only pass, too: old programs combine
/// [n, 1] with [n].
Status check_same_count(const InferContext& ctx, llvm::StringRef slot_a, llvm::StringRef slot_b,
                        size_t index = 0);
/// Errors: the rank is known and outside of [min_rank, max_rank].
Status check_rank(const InferContext& ctx, llvm::StringRef slot, size_t min_rank, size_t max_rank);
/// Errors: the number of elements is known and is not count.
Status check_elements(const InferContext& ctx, llvm::StringRef slot, int64_t count,
                      size_t index = 0);

/// Output shape of an op that creates a tensor: from attribute "shape", or from the inputs
/// ShapeTensor (its length is the rank) or ShapeTensorList (the attribute holds the constant dims)
/// if the op has one of them. nullopt if the rank is unknown. Errors: a dim below -1 that no tensor
/// supplies.
StatusOr<std::optional<Dims>> shape_from_attr(const InferContext& ctx);

}  // namespace millrace::ops
