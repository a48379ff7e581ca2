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

/// Tensors in the memory of a device. To everybody else they are tensors in an order that only one
/// library knows (Tensor::layout()): what copies them by make_plain() or copy_plain() gets their
/// elements, and a resize() by somebody who does not know the device gives them memory of the
/// process.
namespace millrace::gpu {

/// Row-major elements in the memory of a device.
class ResidentLayout final : public Layout {
 public:
  /// \param data      within the block
  /// \param capacity  bytes that belong to the tensor from there on
  ResidentLayout(std::shared_ptr<Block> block, std::byte* data, int64_t capacity, int64_t bytes)
      : block_(std::move(block)), data_(data), capacity_(capacity), bytes_(bytes) {}

  [[nodiscard]] int64_t bytes() const override { return bytes_; }
  [[nodiscard]] bool same_as(const Layout& other) const override;
  Status to_plain(const std::byte* from, std::byte* to) const override;
  [[nodiscard]] std::string name() const override { return "gpu"; }
  /// Kernels of the processor get row-major tensors, whatever they accept.
  [[nodiscard]] bool is_private() const override { return true; }

  [[nodiscard]] const std::shared_ptr<Block>& block() const { return block_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t capacity() const { return capacity_; }

 private:
  friend Status bind_resident(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims,
                              std::shared_ptr<ResidentLayout> layout);
  std::shared_ptr<Block> block_;
  std::byte* data_;
  int64_t capacity_;
  int64_t bytes_;
  /// Shared with the tensor, so that Tensor::resize() never takes the memory for its own.
  std::shared_ptr<void> pin_;
};

/// The layout of a tensor in device memory; null for any other tensor.
const ResidentLayout* resident(const Tensor& tensor);

/// Gives a tensor this type and these dims in device memory, with undefined elements. Memory that
/// it has there is kept where it suffices and no other tensor looks at it. LoD is kept.
/// \param holder  name of the var, for messages
/// Errors: kResource.
Status resize_resident(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims, Memory& memory,
                       std::string_view holder);
/// Gives an empty tensor a place within a block, which later calls of resize_resident() use as long
/// as it suffices. Errors: kResource.
Status reserve_resident(Tensor& tensor, std::shared_ptr<Block> block, int64_t offset,
                        int64_t capacity);
/// Copies the elements into device memory; does nothing if they are there. Errors: kResource,
/// kExecution.
Status move_in(Tensor& tensor, Memory& memory, std::string_view holder);
/// Gives a tensor in device memory type, dims, LoD and elements of one in the process. Errors: as
/// move_in().
Status upload(const Tensor& from, Tensor& to, Memory& memory, std::string_view holder);

}  // namespace millrace::gpu
