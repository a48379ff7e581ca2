#include "kernels/cpu/scalar.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace {

using Floats = Types<float, Float16, Bfloat16>;

}  // namespace

StatusOr<double> first_number(const Tensor& tensor, const char* slot) {
  if (!tensor.initialized() || tensor.numel() < 1) {
    return Status(StatusCode::kExecution,
                  fmt::format("{} must have one element, found {}", slot, describe(tensor)));
  }
  double value = 0;
  MILLRACE_RETURN_IF_ERROR(dispatch<AllTypes>(tensor.dtype(), [&](auto tag) -> Status {
    value = static_cast<double>(*tensor.data<typename decltype(tag)::type>());
    return Ok();
  }));
  return value;
}

void load_floats(const Tensor& from, int64_t begin, int64_t count, float* to) {
  (void)dispatch<Floats>(from.dtype(), [&](auto tag) -> Status {
    const auto* const data = from.data<typename decltype(tag)::type>() + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(data[i]);
    return Ok();
  });
}

void store_floats(const float* from, int64_t begin, int64_t count, Tensor& to) {
  (void)dispatch<Floats>(to.dtype(), [&](auto tag) -> Status {
    auto* const data = to.data<typename decltype(tag)::type>() + begin;
    for (int64_t i = 0; i < count; ++i) data[i] = from[i];
    return Ok();
  });
}

}  // namespace millrace::kernels
