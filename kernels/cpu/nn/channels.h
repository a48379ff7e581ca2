#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/tensor/tensor.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/device.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Memory layout of the channels of images: element i of channel c of part n is at (n * channels +
/// c) * inner + i. Parts are images if channels come first, else pixels.
struct ChannelLayout {
  /// \param dims  of the tensor: [batch, channels, spatial...] or [batch, spatial..., channels]
  /// \param last  the channels are the last dim; a tensor without elements has outer 0
  ChannelLayout(llvm::ArrayRef<int64_t> dims, bool last) {
    int64_t all = 1;
    for (const int64_t dim : dims) all *= dim;
    channels = channel_count(dims, last);
    if (!last) {
      for (const int64_t dim : dims.drop_front(2)) inner *= dim;
    }
    const int64_t part = channels * inner;
    outer = part == 0 ? 0 : all / part;
  }

  /// Number of elements of one channel.
  [[nodiscard]] int64_t of_channel() const { return outer * inner; }

  /// Calls body(begin, end) for ranges of channels: one channel at a time if channels are planes,
  /// as many as possible if they are columns.
  template <typename Body>
  void for_channels(CpuDevice& device, Body&& body) const {
    const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(of_channel(), 1), 1);
    device.parallel_for(channels, grain, [&](int64_t begin, int64_t end) {
      if (inner == 1) return body(begin, end);
      for (int64_t c = begin; c < end; ++c) body(c, c + 1);
    });
  }

  /// Number of parts: images, or pixels of all images.
  int64_t outer = 0;
  int64_t channels = 0;  ///< extent of the channel dim
  /// Elements of a channel that are contiguous: those of a plane, or 1 if channels come last.
  int64_t inner = 1;
};

/// A vector with one value per channel (or column), read by an op. Null if it is absent. Errors:
/// wrong element type or number of elements; the message names the slot.
template <typename T>
StatusOr<const T*> channel_values(const Tensor* tensor, const char* slot, int64_t count) {
  if (tensor == nullptr) return static_cast<const T*>(nullptr);
  if (tensor->dtype() == kDTypeOf<T> && tensor->numel() == count) return tensor->data<T>();
  return KernelContext::error("{} must have {} elements of type {}, found {}", slot, count,
                              dtype_name(kDTypeOf<T>), describe(*tensor));
}
/// The same for a required vector.
template <typename T>
StatusOr<const T*> needed_values(const KernelContext& ctx, ArgIndex arg, const char* slot,
                                 int64_t count) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, needed(ctx, arg, slot));
  return channel_values<T>(tensor, slot, count);
}
/// The same for an output that shape inference has sized.
template <typename T>
StatusOr<T*> channel_results(Tensor* tensor, const char* slot, int64_t count) {
  MILLRACE_RETURN_IF_ERROR(channel_values<T>(tensor, slot, count).status());
  return tensor == nullptr ? static_cast<T*>(nullptr) : tensor->data<T>();
}

/// Errors: a and b differ in element type or dims; the message names both slots.
/// Used by gradient ops, whose inputs no shape inference has compared.
Status check_alike(const Tensor& a, const char* slot_a, const Tensor& b, const char* slot_b);

}  // namespace millrace::kernels
