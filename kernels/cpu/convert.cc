#include "kernels/cpu/convert.h"

#include <cstring>

#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace {

template <typename From, typename To>
void convert_loop(const From* source, To* target, int64_t count) {
  using Middle = Compute<From>;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<Middle>(source[i]);
    if constexpr (std::is_same_v<To, bool>) {
      target[i] = value != Middle(0);
    } else {
      target[i] = static_cast<To>(static_cast<Compute<To>>(value));
    }
  }
}

}  // namespace

Status convert(DType from, const std::byte* source, DType to, std::byte* target, int64_t count) {
  if (from == to) {
    if (source != target && count > 0)
      std::memcpy(target, source, static_cast<size_t>(count * dtype_size(from)));
    return Ok();
  }
  return dispatch<AllTypes>(from, [&](auto from_tag) {
    return dispatch<AllTypes>(to, [&](auto to_tag) -> Status {
      using From = typename decltype(from_tag)::type;
      using To = typename decltype(to_tag)::type;
      if constexpr (!std::is_same_v<From, To>) {
        convert_loop(reinterpret_cast<const From*>(source), reinterpret_cast<To*>(target), count);
      }
      return Ok();
    });
  });
}

DType wide_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBfloat16:
      return DType::kFloat32;
    case DType::kBool:
    case DType::kInt8:
    case DType::kUint8:
    case DType::kInt16:
      return DType::kInt32;
    default:
      return dtype;
  }
}

StatusOr<const std::byte*> elements_as(CpuDevice& device, const Tensor& tensor, DType dtype,
                                       int slot) {
  if (tensor.dtype() == dtype) return tensor.raw();
  const auto bytes = static_cast<size_t>(tensor.numel() * dtype_size(dtype));
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const place, device.scratch(bytes, slot));
  MILLRACE_RETURN_IF_ERROR(convert(tensor.dtype(), tensor.raw(), dtype, place, tensor.numel()));
  return static_cast<const std::byte*>(place);
}

StatusOr<WideOutput> WideOutput::open(CpuDevice& device, Tensor& tensor, DType dtype, int slot) {
  if (tensor.dtype() == dtype) return WideOutput(tensor, dtype, tensor.raw());
  const auto bytes = static_cast<size_t>(tensor.numel() * dtype_size(dtype));
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const place, device.scratch(bytes, slot));
  return WideOutput(tensor, dtype, place);
}

Status WideOutput::finish() const {
  if (tensor_->dtype() == dtype_) return Ok();
  return convert(dtype_, data_, tensor_->dtype(), tensor_->raw(), tensor_->numel());
}

}  // namespace millrace::kernels
