#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/layout.h"
#include "framework/tensor/tensor.h"
#include "kernels/gpu/memory.h"

/// Tensors in device memory. All other code sees them as tensors in an order that only one library
/// knows (Tensor::layout()): make_plain() and copy_plain() return their elements, and resize()
/// called by code that does not know the device gives them process memory.
namespace millrace::gpu {

/// Row-major elements in device memory.
class ResidentLayout final : public Layout {
 public:
  /// \param data      start of the tensor within the block
  /// \param capacity  bytes from there on that belong to the tensor
  /// \param is_view   the tensor is a range of another one, which must not be written as memory of
  ///                  its own
  ResidentLayout(std::shared_ptr<Block> block, std::byte* data, int64_t capacity, int64_t bytes,
                 bool is_view = false)
      : block_(std::move(block)),
        data_(data),
        capacity_(capacity),
        bytes_(bytes),
        is_view_(is_view) {}

  [[nodiscard]] int64_t bytes() const override { return bytes_; }
  [[nodiscard]] bool same_as(const Layout& other) const override;
  Status to_plain(const std::byte* from, std::byte* to) const override;
  [[nodiscard]] std::string name() const override { return "gpu"; }
  /// CPU kernels get row-major tensors, even if they accept other layouts.
  [[nodiscard]] bool is_private() const override { return true; }

  [[nodiscard]] const std::shared_ptr<Block>& block() const { return block_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t capacity() const { return capacity_; }
  [[nodiscard]] bool is_view() const { return is_view_; }
  /// The same elements in process memory, if they were copied from there and are small whole
  /// numbers, such as ids: reading them does not wait for the device. Else null.
  [[nodiscard]] const Tensor* host() const { return host_.get(); }
  /// The same, to be given to a tensor with the same elements.
  [[nodiscard]] const std::shared_ptr<const Tensor>& shared_host() const { return host_; }
  /// Sets host(). Null must be set before the elements in device memory change.
  void set_host(std::shared_ptr<const Tensor> host) const { host_ = std::move(host); }

 private:
  friend Status bind_resident(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims,
                              std::shared_ptr<ResidentLayout> layout);
  std::shared_ptr<Block> block_;
  std::byte* data_;
  int64_t capacity_;  ///< bytes from data_ on that belong to the tensor
  int64_t bytes_;     ///< of the elements
  bool is_view_;      ///< the elements belong to another tensor as well
  // Layouts are immutable, and this says nothing about the order of elements. All views of the
  // memory share it.
  mutable std::shared_ptr<const Tensor> host_;
  /// Shared with the tensor, so that Tensor::resize() never treats the memory as its own.
  std::shared_ptr<void> pin_;
};

/// The layout of a tensor in device memory; null for any other tensor.
const ResidentLayout* resident(const Tensor& tensor);

/// Sets the type and dims of a tensor in device memory; its elements become undefined. Existing
/// device memory is reused if it is large enough and no other tensor uses it. The LoD does not
/// change.
/// \param holder  name of the var, for messages
/// Errors: kResource.
Status resize_resident(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims, Memory& memory,
                       std::string_view holder);
/// Assigns an empty tensor a range within a block, which later calls of resize_resident() use while
/// it is large enough. Errors: kResource.
Status reserve_resident(Tensor& tensor, std::shared_ptr<Block> block, int64_t offset,
                        int64_t capacity);
/// Row t of a tensor in device memory, as a view with the given dims. Errors: kResource.
StatusOr<Tensor> share_resident(const Tensor& tensor, int64_t t, llvm::ArrayRef<int64_t> dims);
/// Copies the elements to device memory; does nothing if they are already there. Errors: kResource,
/// kExecution.
Status move_in(Tensor& tensor, Memory& memory, std::string_view holder);
/// Copies type, dims, LoD and elements of a tensor in process memory to a tensor in device memory.
/// Errors: as move_in().
Status upload(const Tensor& from, Tensor& to, Memory& memory, std::string_view holder);

/// Must be called before a kernel of the device changes elements of a tensor in place: drops their
/// copy in process memory.
inline void forget_host(const Tensor& tensor) {
  if (const ResidentLayout* const there = resident(tensor)) there->set_host(nullptr);
}

}  // namespace millrace::gpu
