#include "framework/tensor/tensor.h"

#include <cassert>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/tensor/layout.h"
#include "framework/tensor/limit.h"

namespace millrace {

StatusOr<Tensor> Tensor::create(DType dtype, llvm::ArrayRef<int64_t> dims) {
  Tensor tensor;
  MILLRACE_RETURN_IF_ERROR(tensor.resize(dtype, dims));
  return tensor;
}

int64_t Tensor::storage_bytes() const {
  return layout_ == nullptr ? bytes() : layout_->bytes();
}

// Makes sure that the tensor has unshared memory of at least `bytes` bytes.
Status Tensor::reserve(int64_t bytes) {
  if (data_ == nullptr && static_cast<size_t>(bytes) <= capacity_ && owner_.use_count() <= 1) {
    data_ = static_cast<std::byte*>(owner_.get());  // the memory given to bind()
    if (data_ != nullptr) return Ok();
  }
  if (data_ != nullptr && static_cast<size_t>(bytes) <= capacity_ && owner_.use_count() <= 1)
    return Ok();
  MILLRACE_RETURN_IF_ERROR(check_tensor_bytes(bytes));
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                            Buffer::allocate(static_cast<size_t>(bytes)));
  data_ = buffer->data();
  capacity_ = buffer->size();
  owner_ = std::move(buffer);
  return Ok();
}

Status Tensor::resize(DType dtype, llvm::ArrayRef<int64_t> dims) {
  return resize(dtype, dims, nullptr);
}

Status Tensor::resize(DType dtype, llvm::ArrayRef<int64_t> dims,
                      std::shared_ptr<const Layout> layout) {
  int64_t numel = 1;
  int64_t bytes = dtype_size(dtype);
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(numel, dim, &numel) ||
        (dim != 0 && __builtin_mul_overflow(bytes, dim, &bytes))) {
      return {StatusCode::kInvalidArgument,
              fmt::format("no tensor has the dims [{}]", fmt::join(dims, ", "))};
    }
  }
  if (numel == 0) bytes = 0;
  if (Status status = reserve(layout == nullptr ? bytes : layout->bytes()); !status.ok()) {
    return std::move(status).with_note(
        fmt::format("the tensor is {} [{}]", dtype_name(dtype), fmt::join(dims, ", ")));
  }
  dtype_ = dtype;
  layout_ = std::move(layout);
  if (dims.data() != dims_.data()) dims_.assign(dims.begin(), dims.end());
  numel_ = numel;
  return Ok();
}

void Tensor::set_dims(llvm::ArrayRef<int64_t> dims) {
  assert(layout_ == nullptr);
  const Dims copy(dims.begin(), dims.end());
  dims_ = copy;
}

Tensor Tensor::share() const {
  Tensor view;
  view.dims_ = dims_;
  view.numel_ = numel_;
  view.data_ = data_;
  view.owner_ = owner_;
  // A view of memory without owner cannot know which other tensors use it, so its capacity stays 0
  // and resize() allocates instead of reusing the memory.
  if (owner_.use_count() > 0) view.capacity_ = capacity_;
  view.layout_ = layout_;
  view.lod_ = lod_;
  view.dtype_ = dtype_;
  return view;
}

Tensor Tensor::share_rows(int64_t begin, int64_t end) const {
  assert(layout_ == nullptr);
  Tensor view = share();
  const int64_t row = dims_[0] == 0 ? 0 : numel_ / dims_[0];
  const int64_t skipped = begin * row * dtype_size(dtype_);
  view.dims_[0] = end - begin;
  view.numel_ = (end - begin) * row;
  view.data_ += skipped;
  if (view.capacity_ > 0) view.capacity_ -= static_cast<size_t>(skipped);
  view.lod_ = Lod();
  return view;
}

StatusOr<Tensor> Tensor::clone() const {
  Tensor copy;
  if (initialized()) MILLRACE_RETURN_IF_ERROR(copy.copy_from(*this));
  return copy;
}

Status Tensor::copy_from(const Tensor& other) {
  if (&other == this) return Ok();
  if (!other.initialized()) {
    reset();
    return Ok();
  }
  MILLRACE_RETURN_IF_ERROR(resize(other.dtype_, other.dims_, other.layout_));
  if (other.numel_ > 0 && data_ != other.data_)
    std::memcpy(data_, other.data_, static_cast<size_t>(other.storage_bytes()));
  lod_ = other.lod_;
  return Ok();
}

void Tensor::bind(std::shared_ptr<void> owner, std::byte* data, size_t capacity) {
  // The tensor is uninitialized until resize(): what a kernel finds in an output must not depend on
  // whether its memory was planned. Until then owner_ holds the address.
  owner_ = std::shared_ptr<void>(std::move(owner), data);
  data_ = nullptr;
  capacity_ = data == nullptr ? 0 : capacity;
  dims_.assign(1, 0);
  numel_ = 0;
  layout_.reset();
}

void Tensor::swap(Tensor& other) noexcept {
  std::swap(dims_, other.dims_);
  std::swap(numel_, other.numel_);
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  std::swap(owner_, other.owner_);
  std::swap(layout_, other.layout_);
  std::swap(lod_, other.lod_);
  std::swap(dtype_, other.dtype_);
}

void Tensor::reset() {
  *this = Tensor();
}

std::string describe(const Tensor& tensor) {
  if (!tensor.initialized()) return "a tensor without data";
  return fmt::format("{} [{}]", dtype_name(tensor.dtype()), fmt::join(tensor.dims(), ", "));
}

}  // namespace millrace
