#include "kernels/gpu/resident.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace::gpu {
namespace {

// Largest tensor whose elements are kept in process memory as well.
constexpr int64_t kMostHostBytes = int64_t{4} << 20;

int64_t bytes_of(DType dtype, llvm::ArrayRef<int64_t> dims) {
  int64_t bytes = dtype_size(dtype);
  for (const int64_t dim : dims) bytes *= dim;
  return bytes;
}

}  // namespace

bool ResidentLayout::same_as(const Layout& other) const {
  const auto* const resident = dynamic_cast<const ResidentLayout*>(&other);
  return resident != nullptr && &resident->block_->memory() == &block_->memory();
}

Status ResidentLayout::to_plain(const std::byte* from, std::byte* to) const {
  if (host_ != nullptr) {
    std::memcpy(to, host_->raw(), static_cast<size_t>(bytes_));
    return Ok();
  }
  return block_->memory().copy_out(from, to, bytes_);
}

const ResidentLayout* resident(const Tensor& tensor) {
  return dynamic_cast<const ResidentLayout*>(tensor.layout().get());
}

// Tensor checks how many owners share its memory. While it takes the memory the count must be one;
// afterwards it is two, so that the tensor never resizes within that memory by itself.
Status bind_resident(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims,
                     std::shared_ptr<ResidentLayout> layout) {
  const Dims copy(dims.begin(), dims.end());  // dims may be those of the tensor
  std::shared_ptr<void> pin = layout->block_;
  pin = std::make_shared<std::shared_ptr<void>>(std::move(pin));
  const std::weak_ptr<void> later = pin;
  ResidentLayout& made = *layout;
  tensor.bind(std::move(pin), made.data_, static_cast<size_t>(made.capacity_));
  MILLRACE_RETURN_IF_ERROR(tensor.resize(dtype, copy, std::move(layout)));
  made.pin_ = later.lock();
  return Ok();
}

Status resize_resident(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims, Memory& memory,
                       std::string_view holder) {
  const int64_t bytes = bytes_of(dtype, dims);
  const ResidentLayout* const old = resident(tensor);
  // two owners: the tensor, and the pointer returned here
  const bool keeps = old != nullptr && !old->is_view() && old->capacity() >= bytes &&
                     &old->block()->memory() == &memory && tensor.layout().use_count() == 1;
  if (keeps && tensor.dtype() == dtype && tensor.dims() == dims) {
    old->set_host(nullptr);
    return Ok();
  }
  if (keeps) {
    return bind_resident(
        tensor, dtype, dims,
        std::make_shared<ResidentLayout>(old->block(), old->data(), old->capacity(), bytes));
  }
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Block> block, memory.allocate(bytes, holder));
  std::byte* const data = block->data();
  const int64_t capacity = block->bytes();
  return bind_resident(tensor, dtype, dims,
                       std::make_shared<ResidentLayout>(std::move(block), data, capacity, bytes));
}

Status reserve_resident(Tensor& tensor, std::shared_ptr<Block> block, int64_t offset,
                        int64_t capacity) {
  std::byte* const data = block->data() + offset;
  return bind_resident(tensor, DType::kFloat32, {0},
                       std::make_shared<ResidentLayout>(std::move(block), data, capacity, 0));
}

StatusOr<Tensor> share_resident(const Tensor& tensor, int64_t t, llvm::ArrayRef<int64_t> dims) {
  const ResidentLayout& there = *resident(tensor);
  const int64_t bytes = bytes_of(tensor.dtype(), dims);
  auto layout = std::make_shared<ResidentLayout>(there.block(), there.data() + t * bytes, bytes,
                                                 bytes, /*is_view=*/true);
  if (const Tensor* const host = there.host()) {
    Tensor row = host->share_rows(t, t + 1);
    row.set_dims(dims);
    layout->set_host(std::make_shared<const Tensor>(std::move(row)));
  }
  Tensor view;
  MILLRACE_RETURN_IF_ERROR(bind_resident(view, tensor.dtype(), dims, std::move(layout)));
  return view;
}

Status upload(const Tensor& from, Tensor& to, Memory& memory, std::string_view holder) {
  if (from.layout() != nullptr) {
    Tensor plain;
    MILLRACE_RETURN_IF_ERROR(copy_plain(from, plain));
    return upload(plain, to, memory, holder);
  }
  MILLRACE_RETURN_IF_ERROR(resize_resident(to, from.dtype(), from.dims(), memory, holder));
  to.set_lod(from.lod());
  MILLRACE_RETURN_IF_ERROR(memory.copy_in(from.raw(), to.raw(), from.bytes()));
  const bool may_be_ids = from.dtype() == DType::kInt64 || from.dtype() == DType::kInt32;
  if (!may_be_ids || from.bytes() > kMostHostBytes) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(Tensor copy, from.clone());
  resident(to)->set_host(std::make_shared<const Tensor>(std::move(copy)));
  return Ok();
}

Status move_in(Tensor& tensor, Memory& memory, std::string_view holder) {
  if (const ResidentLayout* const there = resident(tensor);
      there != nullptr && &there->block()->memory() == &memory)
    return Ok();
  Tensor moved;
  MILLRACE_RETURN_IF_ERROR(upload(tensor, moved, memory, holder));
  tensor = std::move(moved);
  return Ok();
}

}  // namespace millrace::gpu
