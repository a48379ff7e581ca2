#pragma once

#include <span>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::io {

/// Reads one npy file from memory: versions 1 to 3, C or Fortran order, native or other byte order;
/// bool, integers of 8 to 64 bits (unsigned 32 and 64 bits if the values fit their signed
/// neighbours), float16, float32, float64.
///
/// bfloat16 has no npy type: uint16 comes as kInt16 bits; callers that know better call
/// as_bfloat16(). Never allocates more than the bytes back.
/// Errors: kInvalidData with what was expected and found.
StatusOr<Tensor> parse_npy(std::string_view bytes);

/// parse_npy() of a file. Errors: also kNotFound, kIo, kResource.
StatusOr<Tensor> read_npy(const std::string& path);

/// Header of the npy file for a tensor: version 1, C order, padded to 64 bytes. bfloat16 is
/// declared as uint16.
std::string npy_header(const Tensor& tensor);

/// Gives the bits of a kInt16 tensor the type kBfloat16 without copying.
/// Errors: kInvalidData for another dtype.
StatusOr<Tensor> as_bfloat16(Tensor tensor);

}  // namespace millrace::io
