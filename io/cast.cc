#include "io/cast.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "framework/base/errors.h"
#include "framework/tensor/float16.h"

namespace millrace::io {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <typename To, typename From>
To cast_element(From from) {
  if constexpr (kIsHalf<From>) {
    return cast_element<To>(static_cast<float>(from));
  } else if constexpr (kIsHalf<To>) {
    return To(static_cast<float>(from));
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(from)) return 0;
    // 2^63 as a floating-point number is above the largest integer
    if (from >= static_cast<From>(Limits::max())) return Limits::max();
    return from <= static_cast<From>(Limits::min()) ? Limits::min() : static_cast<To>(from);
  } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    if (std::cmp_greater(int64_t{from}, Limits::max())) return Limits::max();
    return std::cmp_less(int64_t{from}, Limits::min()) ? Limits::min() : static_cast<To>(from);
  } else {
    return static_cast<To>(from);
  }
}

// Calls a function object with a value of the type. False for types that are not real numbers.
template <typename Call>
bool with_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::kBool:
      call(bool{});
      return true;
    case DType::kUint8:
      call(uint8_t{});
      return true;
    case DType::kInt8:
      call(int8_t{});
      return true;
    case DType::kInt16:
      call(int16_t{});
      return true;
    case DType::kInt32:
      call(int32_t{});
      return true;
    case DType::kInt64:
      call(int64_t{});
      return true;
    case DType::kFloat16:
      call(Float16());
      return true;
    case DType::kBfloat16:
      call(Bfloat16());
      return true;
    case DType::kFloat32:
      call(float{});
      return true;
    case DType::kFloat64:
      call(double{});
      return true;
    default:
      return false;
  }
}

}  // namespace

Status cast(Tensor& tensor, DType to) {
  if (tensor.dtype() == to) return Ok();
  Tensor result;
  MILLRACE_RETURN_IF_ERROR(result.resize(to, tensor.dims()));
  bool known_to = false;
  const bool known_from = with_type(tensor.dtype(), [&](auto from) {
    known_to = with_type(to, [&](auto into) {
      using From = decltype(from);
      using To = decltype(into);
      const auto* const read = tensor.data<From>();
      auto* const write = result.data<To>();
      for (int64_t i = 0; i < tensor.numel(); ++i) write[i] = cast_element<To>(read[i]);
    });
  });
  if (!known_from || !known_to)
    return Unimplemented("{} cannot be cast to {}", dtype_name(tensor.dtype()), dtype_name(to));
  result.set_lod(tensor.lod());
  tensor = std::move(result);
  return Ok();
}

}  // namespace millrace::io
