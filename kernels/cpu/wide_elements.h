#pragma once

#include <utility>

#include "kernels/cpu/convert.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {

/// Calls body(elements of x, elements of out) with both as the float type in which kernels compute
/// (wide_type()): the tensors' own memory, or scratch slots 0 and 1 of the device. Results are
/// converted back after the call. The body returns a Status.
/// Errors: those of the body; kResource; kUnimplemented for a type that is no float.
template <typename Body>
Status with_wide_elements(CpuDevice& device, const Tensor& x, Tensor& out, Body&& body) {
  const DType dtype = wide_type(x.dtype());
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const from, elements_as(device, x, dtype, 0));
  MILLRACE_ASSIGN_OR_RETURN(const WideOutput to, WideOutput::open(device, out, dtype, 1));
  MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    return body(reinterpret_cast<const T*>(from), to.data<T>());
  }));
  return to.finish();
}

}  // namespace millrace::kernels
