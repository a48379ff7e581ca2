#pragma once

#include <cstdint>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// Converts count elements between any two element types. To bool: not equal to zero. Floats are
/// truncated towards zero for integers; integers that do not fit lose their high bits. from and to
/// may be the same memory if the types have the same size. Errors: kUnimplemented for types that
/// kernels lack.
Status convert(DType from, const std::byte* source, DType to, std::byte* target, int64_t count);

/// The type in which kernels with loops for four types only compute: float for the 16-bit floats,
/// int32 for bool and the narrow integers, else the type itself.
DType wide_type(DType dtype);

/// The elements of a tensor as another type: the tensor's memory if the type is the same, else
/// converted into scratch memory of the device. Errors: kResource, kUnimplemented.
/// \param slot  slot of the scratch memory, see CpuDevice::scratch()
StatusOr<const std::byte*> elements_as(CpuDevice& device, const Tensor& tensor, DType dtype,
                                       int slot);

/// A buffer for the elements of an output as another type; finish() converts them if the types
/// differ.
class WideOutput {
 public:
  /// Errors: kResource.
  static StatusOr<WideOutput> open(CpuDevice& device, Tensor& tensor, DType dtype, int slot);
  template <typename T>
  [[nodiscard]] T* data() const {
    return reinterpret_cast<T*>(data_);
  }
  Status finish() const;

 private:
  WideOutput(Tensor& tensor, DType dtype, std::byte* data)
      : tensor_(&tensor), dtype_(dtype), data_(data) {}
  Tensor* tensor_;   ///< the output
  DType dtype_;      ///< type of the buffer
  std::byte* data_;  ///< the tensor's memory, or scratch memory
};

}  // namespace millrace::kernels
