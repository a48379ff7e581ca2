#include "kernels/gpu/resident_values.h"

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/gpu/launch.h"
#include "kernels/gpu/resident.h"

namespace millrace::gpu {
namespace {

constexpr std::string_view kHolder = "a value of a sub-block";
// Libraries expect operands that are aligned as memory of their own.
constexpr int64_t kAlignment = 256;

bool is_resident(const Tensor& tensor) {
  return resident(tensor) != nullptr;
}
Memory& memory_of(const Tensor& tensor) {
  return resident(tensor)->block()->memory();
}

}  // namespace

Status copy_value_of(const Tensor& from, Tensor& to) {
  if (&from == &to) return Ok();
  if (!from.initialized() || !is_resident(from)) {
    // memory of the device is not written by the processor
    if (is_resident(to)) to = Tensor();
    return to.copy_from(from);
  }
  Memory& memory = memory_of(from);
  if (to.initialized() && to.raw() == from.raw()) to = Tensor();
  MILLRACE_RETURN_IF_ERROR(resize_resident(to, from.dtype(), from.dims(), memory, kHolder));
  to.set_lod(from.lod());
  resident(to)->set_host(resident(from)->shared_host());
  return from.bytes() == 0 ? Ok() : memory.device().copy(from.raw(), to.raw(), from.bytes());
}

Status make_zeros_like(const Tensor& like, Tensor& to) {
  if (!is_resident(like)) {
    if (is_resident(to)) to = Tensor();
    MILLRACE_RETURN_IF_ERROR(to.resize(like.dtype(), like.dims()));
    to.set_lod(like.lod());
    if (to.bytes() > 0) std::memset(to.raw(), 0, static_cast<size_t>(to.bytes()));
    return Ok();
  }
  Memory& memory = memory_of(like);
  MILLRACE_RETURN_IF_ERROR(resize_resident(to, like.dtype(), like.dims(), memory, kHolder));
  to.set_lod(like.lod());
  auto* const bytes = reinterpret_cast<uint8_t*>(to.raw());
  if (to.bytes() % 4 != 0) return each(memory.device(), Set<uint8_t>{bytes, 0}, to.bytes());
  return each(memory.device(), Set<uint32_t>{reinterpret_cast<uint32_t*>(bytes), 0},
              to.bytes() / 4);
}

StatusOr<bool> add_resident(Tensor& from, Tensor& to) {
  if (!is_resident(from) && !is_resident(to)) return false;
  if (from.dtype() != DType::kFloat32) {
    MILLRACE_RETURN_IF_ERROR(make_plain(from));
    MILLRACE_RETURN_IF_ERROR(make_plain(to));
    return false;
  }
  Memory& memory = memory_of(is_resident(from) ? from : to);
  MILLRACE_RETURN_IF_ERROR(move_in(from, memory, kHolder));
  MILLRACE_RETURN_IF_ERROR(move_in(to, memory, kHolder));
  auto* const sum = reinterpret_cast<float*>(to.raw());
  Walk<2> dense;
  dense.dense = true;
  const Binary<Add, float> add{sum, reinterpret_cast<const float*>(from.raw()), sum, dense};
  MILLRACE_RETURN_IF_ERROR(each(memory.device(), add, to.numel()));
  return true;
}

StatusOr<Tensor> row_of(const Tensor& tensor, int64_t t) {
  const llvm::ArrayRef<int64_t> dims = tensor.dims().drop_front();
  if (!is_resident(tensor)) {
    Tensor row = tensor.share_rows(t, t + 1);
    row.set_dims(dims);
    return row;
  }
  const int64_t bytes = tensor.bytes() / tensor.dim(0);
  if (bytes * t % kAlignment == 0) return share_resident(tensor, t, dims);
  Tensor copy;
  Memory& memory = memory_of(tensor);
  MILLRACE_RETURN_IF_ERROR(resize_resident(copy, tensor.dtype(), dims, memory, kHolder));
  if (const Tensor* const host = resident(tensor)->host()) {
    Tensor row = host->share_rows(t, t + 1);
    row.set_dims(dims);
    resident(copy)->set_host(std::make_shared<const Tensor>(std::move(row)));
  }
  if (bytes > 0)
    MILLRACE_RETURN_IF_ERROR(memory.device().copy(tensor.raw() + t * bytes, copy.raw(), bytes));
  return copy;
}

Status put_row(const Tensor& row, int64_t t, Tensor& to) {
  if (row.bytes() == 0) return Ok();
  std::byte* const place = to.raw() + t * row.bytes();
  if (is_resident(row) && is_resident(to))
    return memory_of(row).device().copy(row.raw(), place, row.bytes());
  if (is_resident(row)) return resident(row)->to_plain(row.raw(), place);
  if (is_resident(to)) return memory_of(to).copy_in(row.raw(), place, row.bytes());
  std::memcpy(place, row.raw(), static_cast<size_t>(row.bytes()));
  return Ok();
}

Status resize_like(const Tensor& like, llvm::ArrayRef<int64_t> dims, Tensor& to) {
  if (is_resident(like)) return resize_resident(to, like.dtype(), dims, memory_of(like), kHolder);
  if (is_resident(to)) to = Tensor();
  return to.resize(like.dtype(), dims);
}

}  // namespace millrace::gpu
