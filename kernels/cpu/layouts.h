#pragma once

#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/tensor/layout.h"
#include "framework/tensor/tensor.h"
#include "kernels/device.h"
#include "kernels/kernel.h"

/// Tensors whose elements are in the order of a library (Tensor::layout()), as seen by kernels that
/// do not use the library: as a sequence of elements in an irrelevant order, or as blocks of
/// channels.
namespace millrace::kernels {

/// Null: row-major.
using LayoutPtr = std::shared_ptr<const Layout>;

/// True if element i is at the same memory position in both, given equal dims and types.
bool same_order(const LayoutPtr& a, const LayoutPtr& b);

/// Elements in memory order, including padding. T must be the type of the tensor.
template <typename T>
T* stored(Tensor& tensor) {
  assert(kDTypeOf<T> == tensor.dtype());
  return reinterpret_cast<T*>(tensor.raw());
}
template <typename T>
const T* stored(const Tensor& tensor) {
  assert(kDTypeOf<T> == tensor.dtype());
  return reinterpret_cast<const T*>(tensor.raw());
}
/// Number of elements in memory, including padding.
inline int64_t stored_count(const Tensor& tensor) {
  return tensor.layout() == nullptr ? tensor.numel()
                                    : tensor.storage_bytes() / dtype_size(tensor.dtype());
}
/// True if some of them are padding, which is zero and must stay zero.
inline bool is_padded(const Tensor& tensor) {
  return tensor.layout() != nullptr && tensor.storage_bytes() != tensor.bytes();
}

/// Reorders the elements to a layout, within the memory of the tensor if it is large enough. Does
/// nothing if they are in that order already. Uses scratch slot 3 of the device. Errors: kResource,
/// kExecution; kInternal if the layout was not made for such a tensor.
Status bring_to(CpuDevice& device, Tensor& tensor, const LayoutPtr& layout);
/// The same for an input of the running op; does nothing for one that is absent or not dense.
Status bring_to(const KernelContext& ctx, ArgIndex arg, const LayoutPtr& layout);
/// Converts inputs that were accepted in any layout to row-major order.
Status bring_to_plain(const KernelContext& ctx, std::initializer_list<ArgIndex> args);

/// True for ops whose kernels use a private layout (Layout::is_private()) to mark tensors that they
/// have read.
bool keeps_private_layouts(llvm::StringRef op_type);

/// How a layout stores images: element i of channel c of image n is at ((n * blocks + c / lanes) *
/// inner + i) * lanes + c % lanes. Channels after the last one of the tensor are padding.
struct ChannelBlocks {
  int64_t outer = 0;     ///< images
  int64_t blocks = 0;    ///< channel blocks of an image
  int64_t inner = 0;     ///< elements of a channel in one image
  int64_t lanes = 0;     ///< a multiple of 8
  int64_t channels = 0;  ///< without padding

  /// Number of channels including padding.
  [[nodiscard]] int64_t padded() const { return blocks * lanes; }
};
/// For a tensor whose layout is of this kind, with the channels in dim 1; nullopt for other
/// layouts, including row-major order.
std::optional<ChannelBlocks> channel_blocks(const Tensor& tensor);

/// The layout with the lanes of `like` (a layout of this kind) for images of these dims (channels
/// first); null if that is row-major order. Errors: kInternal.
StatusOr<LayoutPtr> blocks_like(const LayoutPtr& like, DType dtype, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::kernels
