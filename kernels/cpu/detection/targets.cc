#include "kernels/cpu/detection/targets.h"

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/index.h"

namespace millrace::kernels {

StatusOr<std::vector<int64_t>> integers_of(const Tensor& tensor, int64_t count, const char* slot) {
  if (tensor.numel() != count) {
    return KernelContext::error("{} must have {} elements, found {}", slot, count,
                                describe(tensor));
  }
  std::vector<int64_t> values;
  MILLRACE_RETURN_IF_ERROR(with_index(tensor, slot, [&](const auto* data) {
    values.assign(data, data + count);
    return Ok();
  }));
  return values;
}

StatusOr<std::vector<int64_t>> image_offsets(const Tensor& tensor, int64_t images,
                                             const char* slot) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<int64_t> offsets, part_offsets(tensor, nullptr, slot));
  const auto found = static_cast<int64_t>(offsets.size()) - 1;
  if (images >= 0 && found != images) {
    return KernelContext::error("{} must have a LoD of {} images, found {}", slot, images, found);
  }
  return offsets;
}

Status check_rows(const Tensor& tensor, int64_t columns, const Tensor& like, const char* slot) {
  if (tensor.rank() == 2 && tensor.dim(1) == columns && tensor.dtype() == like.dtype()) return Ok();
  return KernelContext::error("{} must be {} [rows, {}], found {}", slot, dtype_name(like.dtype()),
                              columns, describe(tensor));
}

Status put_numbers(Tensor* out, const std::vector<int64_t>& values, bool column,
                   const LodLevel& offsets) {
  MILLRACE_RETURN_IF_ERROR(put_int32(out, values, column));
  if (out != nullptr) out->set_lod(Lod({offsets}));
  return Ok();
}

}  // namespace millrace::kernels
