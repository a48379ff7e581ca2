#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/buffer.h"
#include "framework/tensor/float16.h"
#include "framework/tensor/lod.h"
#include "framework/types.h"
#include "framework/var.h"

namespace millrace {

/// Element type that corresponds to a C++ type; other types have no specialisation.
template <typename T>
inline constexpr DType kDTypeOf = DType{-1};
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kUint8;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<Float16> = DType::kFloat16;
template <>
inline constexpr DType kDTypeOf<Bfloat16> = DType::kBfloat16;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;

class Layout;

/// A dense array in row-major order, with LoD. Within a training step it may instead be in an order
/// that only one library knows (layout()).
///
/// Movable. Copying is explicit: share() returns a second view of the same bytes, clone() a copy. A
/// tensor that was never resized is "not initialized"; executors report reading it as an error.
/// Thread-safety: as a value; access to a buffer through several views is not synchronized.
class Tensor {
 public:
  Tensor() = default;
  /// A tensor that was moved from is not initialized.
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  /// A tensor with uninitialized elements. Errors: as resize().
  static StatusOr<Tensor> create(DType dtype, llvm::ArrayRef<int64_t> dims);

  [[nodiscard]] bool initialized() const { return data_ != nullptr; }
  /// Element type and dims; those of a tensor that is not initialized mean nothing.
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] llvm::ArrayRef<int64_t> dims() const { return dims_; }
  [[nodiscard]] size_t rank() const { return dims_.size(); }
  /// Extent of an axis; negative axes count from the end.
  [[nodiscard]] int64_t dim(int64_t axis) const {
    return dims_[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(dims_.size()) : axis)];
  }
  /// Number of elements; 1 for rank 0.
  [[nodiscard]] int64_t numel() const { return numel_; }
  /// Bytes of the elements in row-major order.
  [[nodiscard]] int64_t bytes() const { return numel_ * dtype_size(dtype_); }
  /// Null for row-major order, the only order outside the executor. Otherwise only kernels that
  /// know the layout may access the memory, through raw().
  [[nodiscard]] const std::shared_ptr<const Layout>& layout() const { return layout_; }
  /// Bytes that the elements take, including padding of the layout.
  [[nodiscard]] int64_t storage_bytes() const;
  [[nodiscard]] const Lod& lod() const { return lod_; }
  void set_lod(Lod lod) { lod_ = std::move(lod); }

  /// First element; T must be the C++ type of dtype().
  template <typename T>
  [[nodiscard]] T* data() {
    assert(kDTypeOf<T> == dtype_ && layout_ == nullptr);
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  [[nodiscard]] const T* data() const {
    assert(kDTypeOf<T> == dtype_ && layout_ == nullptr);
    return reinterpret_cast<const T*>(data_);
  }
  /// All elements in row-major order; T must be the C++ type of dtype().
  template <typename T>
  [[nodiscard]] std::span<T> values() {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  template <typename T>
  [[nodiscard]] std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  /// First byte of the elements, in the order of layout(); null if not initialized.
  [[nodiscard]] std::byte* raw() { return data_; }
  [[nodiscard]] const std::byte* raw() const { return data_; }

  /// Sets dtype and dims. The elements are undefined afterwards, unless neither the byte count nor
  /// the buffer changes. Memory is kept if it suffices and is not shared. LoD is kept. Errors:
  /// kResource; kInvalidArgument for a negative dim or a product beyond int64.
  Status resize(DType dtype, llvm::ArrayRef<int64_t> dims);
  /// The same with another element order. The layout must have been created for this dtype and
  /// these dims.
  Status resize(DType dtype, llvm::ArrayRef<int64_t> dims, std::shared_ptr<const Layout> layout);
  /// Sets new dims for the same row-major elements; the products must be equal.
  void set_dims(llvm::ArrayRef<int64_t> dims);

  /// Another view of the same bytes, with the same LoD.
  [[nodiscard]] Tensor share() const;
  /// A view of rows [begin, end) of dim 0, without LoD; the order must be row-major.
  [[nodiscard]] Tensor share_rows(int64_t begin, int64_t end) const;
  /// A copy of the content and LoD in new memory. Errors: kResource.
  [[nodiscard]] StatusOr<Tensor> clone() const;
  /// Copies dtype, dims, LoD and content of another tensor into this tensor's memory. Errors: as
  /// resize().
  Status copy_from(const Tensor& other);
  /// True if both tensors start at the same byte.
  [[nodiscard]] bool shares_memory_with(const Tensor& other) const { return data_ == other.data_; }

  /// True if this tensor is the only holder of its memory.
  [[nodiscard]] bool holds_memory_alone() const { return owner_.use_count() == 1; }

  /// Lets the tensor use memory that outlives it or that `owner` keeps alive. resize() uses it if
  /// it is large enough. Until then the tensor is not initialized and its dims are [0].
  void bind(std::shared_ptr<void> owner, std::byte* data, size_t capacity);
  /// Drops memory, dims and LoD.
  void reset();
  void swap(Tensor& other) noexcept;

 private:
  Dims dims_;                  ///< all at least 0
  int64_t numel_ = 0;          ///< product of dims_
  std::byte* data_ = nullptr;  ///< null: not initialized
  /// Bytes that may be used from data_ on; data_ may be inside of what owner_ keeps alive.
  size_t capacity_ = 0;
  std::shared_ptr<void> owner_;           ///< keeps the memory alive
  std::shared_ptr<const Layout> layout_;  ///< null: row-major
  Lod lod_;                               ///< offsets of sequences; may be empty
  DType dtype_ = DType::kFloat32;

  /// Makes room for that many bytes: keeps memory that suffices and is not shared.
  Status reserve(int64_t bytes);
};

/// "f32 [2, 3]", for messages.
std::string describe(const Tensor& tensor);

}  // namespace millrace
