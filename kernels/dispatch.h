#pragma once

#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::kernels {

/// A list of element types, for dispatch().
/// A kernel names the types that it has loops for; each adds one instance of its code to the build.
template <typename... Ts>
struct Types {};

using FloatTypes = Types<float, double>;
/// The same with the 16-bit types, whose arithmetic is done in float.
using AllFloatTypes = Types<float, double, Float16, Bfloat16>;
using IntTypes = Types<int32_t, int64_t>;  ///< of indices and ids
using AllIntTypes = Types<int8_t, uint8_t, int16_t, int32_t, int64_t>;
using NumberTypes = Types<float, double, int32_t, int64_t>;  ///< with loops of their own
using AllNumberTypes =
    Types<float, double, Float16, Bfloat16, int8_t, uint8_t, int16_t, int32_t, int64_t>;
using AllTypes =
    Types<bool, float, double, Float16, Bfloat16, int8_t, uint8_t, int16_t, int32_t, int64_t>;

/// The type in which arithmetic on T is done: float for the 16-bit floats, else T.
template <typename T>
using Compute =
    std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>, float, T>;

namespace detail {
/// Carries a type to a generic lambda.
template <typename T>
struct Tag {
  using type = T;
};
template <typename Fn, typename... Ts>
Status dispatch(DType dtype, Types<Ts...> /*types*/, Fn&& fn) {
  Status status;
  const bool found = ((dtype == kDTypeOf<Ts> && (status = fn(Tag<Ts>{}), true)) || ...);
  if (!found)
    return {StatusCode::kUnimplemented,
            fmt::format("no kernel for element type {}", dtype_name(dtype))};
  return status;
}
}  // namespace detail

/// Calls fn(tag) with `typename decltype(tag)::type` being the C++ type of dtype. fn returns
/// Status. Errors: kUnimplemented for a dtype that is not in the list; those of fn.
///
///   return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
///     using T = typename decltype(tag)::type; ...
///   });
template <typename List, typename Fn>
Status dispatch(DType dtype, Fn&& fn) {
  return detail::dispatch(dtype, List{}, std::forward<Fn>(fn));
}

}  // namespace millrace::kernels
