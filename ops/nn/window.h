#pragma once

#include <cstdint>
#include <optional>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "ops/infer_context.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// True for NHWC, NDHWC and similar layouts. In NCHW, NCDHW and AnyLayout the channel dim follows
/// the batch dim.
bool channels_last(const InferContext& ctx, llvm::StringRef attr);
/// Index of the channel dim and of the first spatial dim.
size_t channel_dim(const VarMeta& image, bool last);
size_t first_spatial(bool channels_last);
/// The spatial dims of an image tensor of rank >= 2.
llvm::ArrayRef<int64_t> spatial_dims(const VarMeta& image, bool channels_last);

/// How a kernel moves over the spatial dims, one entry each.
struct Window {
  Dims kernel;
  Dims strides;
  Dims dilations;
  Dims before;  ///< padding before each dim
  Dims after;   ///< padding after each dim
};

/// Reads strides, paddings, dilations and padding_algorithm, as far as the op has them.
///
/// paddings has one entry (for both sides) or two entries (before, after) per dim. With SAME, the
/// padding is computed from the input size (0 for unknown sizes) and dilations are ignored. With
/// VALID there is no padding.
/// Errors: a list of the wrong length.
StatusOr<Window> read_window(const InferContext& ctx, llvm::ArrayRef<int64_t> kernel,
                             llvm::ArrayRef<int64_t> input);

/// Sets the padding so that there are ceil(size / stride) window positions, with an odd element of
/// padding after the dim, and sets dilations to 1. Dims of unknown size are not padded.
void pad_same(Window& window, llvm::ArrayRef<int64_t> input);

/// True if window arithmetic cannot overflow: the size and the window's values for spatial dim i
/// are known and below 2^31.
bool window_is_sane(const Window& window, size_t i, int64_t size);

/// Number of window positions along spatial dim i of the given size; -1 if size or kernel is
/// unknown. round_up also counts a last position that exceeds the dim.
int64_t window_places(const Window& window, size_t i, int64_t size, bool round_up = false);

/// True if the shapes of Input and Filter of a convolution are known.
/// Errors: they are known, and differ in rank or have less than 3 dims.
StatusOr<bool> conv_shapes_known(const InferContext& ctx);

/// Dims of a convolution's result, from the input size and the window.
/// Errors: the kernel does not fit; the message names slots Input and Filter.
StatusOr<Dims> conv_spatial(const InferContext& ctx, llvm::ArrayRef<int64_t> input,
                            const Window& window);

/// Sets Output to images of the dims, or of unknown shape, with the dtype of Input and no LoD.
void set_conv_output(InferContext& ctx, const std::optional<Dims>& dims);

/// Products and sums for each element to which a filter of shape [channels, ...] is applied.
double filter_operations(const VarMeta& filter);

/// Those of all elements of an Output of the dims by Filter; 0 if a shape is unknown or wrong.
double conv_operations(const InferContext& ctx, const StatusOr<std::optional<Dims>>& dims);

/// Adds attributes strides, paddings, padding_algorithm, dilations, groups and data_format to a
/// convolution. The defaults are lists of 1 (paddings: 0) with one entry per spatial dim.
OpDef& add_conv_attrs(OpDef& def, size_t spatial);

/// Errors: the attribute's value is less than 1. Inference divides by it and may run on programs
/// that are not verified.
Status check_positive(const InferContext& ctx, llvm::StringRef attr, int64_t value);

/// Errors: the attribute is a list that has neither count entries nor, if allowed, twice as many.
Status check_length(const InferContext& ctx, llvm::StringRef attr, size_t found, size_t count,
                    bool or_twice = false);

}  // namespace millrace::ops
