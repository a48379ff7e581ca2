#include "kernels/cpu/scalar.h"

#include <fmt/format.h>

#include "kernels/dispatch.h"

namespace millrace::kernels {
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

}  // namespace millrace::kernels
