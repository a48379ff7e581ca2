#pragma once

#include <cstdint>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "ops/infer_context.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// True for NHWC, NDHWC and the like; NCHW, NCDHW and AnyLayout have the channels behind the batch.
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
  Dims before;  ///< padding in front of each dim
  Dims after;   ///< padding behind each dim
};

/// Reads strides, paddings, dilations and padding_algorithm, as far as the op has them.
///
/// paddings has one entry (both sides) or two entries (before, after) a dim. With SAME the padding
/// follows from the input size (unknown sizes: as if 0) and dilations count as 1; with VALID there
/// is none.
/// Errors: a list of the wrong length.
StatusOr<Window> read_window(const InferContext& ctx, llvm::ArrayRef<int64_t> kernel,
                             llvm::ArrayRef<int64_t> input);

/// Sets the padding such that there are ceil(size / stride) places, the odd element behind, and
/// dilations of 1; leaves dims of unknown size unpadded.
void pad_same(Window& window, llvm::ArrayRef<int64_t> input);

/// True if the arithmetic of windows cannot overflow: size and the window's numbers along spatial
/// dim i are known and below 2^31.
bool window_is_sane(const Window& window, size_t i, int64_t size);

/// Places of the window along spatial dim i of the given size; -1 if size or kernel is unknown.
/// round_up counts a last place that sticks out.
int64_t window_places(const Window& window, size_t i, int64_t size, bool round_up = false);

/// Dims of a convolution's result, from the input size and the window.
/// Errors: no place for the kernel; names slots Input and Filter.
StatusOr<Dims> conv_spatial(const InferContext& ctx, llvm::ArrayRef<int64_t> input,
                            const Window& window);

/// Adds attributes strides, paddings, padding_algorithm, dilations (all 1 or 0 for that many
/// spatial dims), groups and data_format to a convolution.
OpDef& add_conv_attrs(OpDef& def, size_t spatial);

/// Errors: value, the attribute's, is less than 1. Inference divides by it and may run on programs
/// that nobody verified.
Status check_positive(const InferContext& ctx, llvm::StringRef attr, int64_t value);

/// Errors: the attribute is a list that has neither count entries nor, if allowed, twice as many.
Status check_length(const InferContext& ctx, llvm::StringRef attr, size_t found, size_t count,
                    bool or_twice = false);

}  // namespace millrace::ops
