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

/// Element type that belongs to a C++ type; other types have no specialisation.
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

/// A dense array in row-major order, with LoD; or, inside a step, in an order that only one library
/// knows (layout()).
///
/// Moves, but copies only when told how: share() gives a second view of the same bytes, clone() new
/// bytes. A tensor that was never resized is "not initialized" and reading it is an error that
/// executors report. Thread-safety: as a value; views of one buffer are the business of their
/// holders.
class Tensor {
 public:
  Tensor() = default;
  /// What was moved from is as if it was never resized.
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  /// Uninitialised elements. Errors: as resize().
  static StatusOr<Tensor> create(DType dtype, llvm::ArrayRef<int64_t> dims);

  [[nodiscard]] bool initialized() const { return data_ != nullptr; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] llvm::ArrayRef<int64_t> dims() const { return dims_; }
  [[nodiscard]] size_t rank() const { return dims_.size(); }
  /// Extent of an axis; negative axes count from the end.
  [[nodiscard]] int64_t dim(int64_t axis) const {
    return dims_[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(dims_.size()) : axis)];
  }
  /// Elements; 1 for rank 0.
  [[nodiscard]] int64_t numel() const { return numel_; }
  /// Bytes of the elements in row-major order.
  [[nodiscard]] int64_t bytes() const { return numel_ * dtype_size(dtype_); }
  /// Null for row-major order, which is the only one that leaves the executor. Otherwise only
  /// raw() may be used, by kernels that know the layout.
  [[nodiscard]] const std::shared_ptr<const Layout>& layout() const { return layout_; }
  /// Bytes that the elements take, padding of the layout included.
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
  template <typename T>
  [[nodiscard]] std::span<T> values() {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  template <typename T>
  [[nodiscard]] std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  [[nodiscard]] std::byte* raw() { return data_; }
  [[nodiscard]] const std::byte* raw() const { return data_; }

  /// Gives the tensor this type and these dims. Elements are undefined afterwards unless both the
  /// byte count and the buffer stay. Memory is kept where it suffices and nobody shares it; LoD is
  /// kept. Errors: kResource; kInvalidArgument for a negative dim or a product beyond int64.
  Status resize(DType dtype, llvm::ArrayRef<int64_t> dims);
  /// The same with the elements in another order, which must have been made for this type and these
  /// dims.
  Status resize(DType dtype, llvm::ArrayRef<int64_t> dims, std::shared_ptr<const Layout> layout);
  /// Other dims for the same row-major elements; the products must be equal.
  void set_dims(llvm::ArrayRef<int64_t> dims);

  /// Another view of the same bytes, LoD included.
  [[nodiscard]] Tensor share() const;
  /// A view of rows [begin, end) of dim 0, without LoD; the order must be row-major.
  [[nodiscard]] Tensor share_rows(int64_t begin, int64_t end) const;
  /// New bytes with the same content, LoD included. Errors: kResource.
  [[nodiscard]] StatusOr<Tensor> clone() const;
  /// Takes dtype, dims, LoD and content of another tensor into memory of its own.
  Status copy_from(const Tensor& other);
  /// True if both look at the same first byte.
  [[nodiscard]] bool shares_memory_with(const Tensor& other) const { return data_ == other.data_; }

  /// True if no other tensor, and nobody else, holds this memory.
  [[nodiscard]] bool holds_memory_alone() const { return owner_.use_count() == 1; }

  /// Uses memory of somebody who outlives the tensor or whom owner keeps alive; bytes of it are
  /// reused by resize() as long as they suffice. The dims are [0] until then.
  void bind(std::shared_ptr<void> owner, std::byte* data, size_t capacity);
  /// Drops memory, dims and LoD.
  void reset();
  void swap(Tensor& other) noexcept;

 private:
  Dims dims_;
  int64_t numel_ = 0;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
  std::shared_ptr<void> owner_;
  std::shared_ptr<const Layout> layout_;
  Lod lod_;
  DType dtype_ = DType::kFloat32;

  Status reserve(int64_t bytes);
};

/// "f32 [2, 3]", for messages.
std::string describe(const Tensor& tensor);

}  // namespace millrace
