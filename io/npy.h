#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::io {

/// Parses an npy file in memory: versions 1 to 3, C or Fortran order, little- or big-endian; bool,
/// integers of 8 to 64 bits (unsigned 32 and 64 bits if the values fit the signed type of the same
/// size), float16, float32, float64, complex64, complex128. uint16 is read as kBfloat16, the only
/// use that the original has for it. Object arrays are rejected; nothing is unpickled.
///
/// Never allocates more memory than the size of the input supports. Errors: kInvalidData with
/// expected and found.
StatusOr<Tensor> parse_npy(std::string_view bytes);

/// parse_npy() of a file, read directly into the tensor's memory.
/// Errors: also kNotFound, kIo, kResource, with the path.
StatusOr<Tensor> read_npy(const std::string& path);

/// parse_npy() of a stream of bytes.
/// \param size  size of the npy file; a header that claims more is rejected before memory is
///              allocated
/// \param read  fills a span with the next bytes
/// Errors: also those of read.
StatusOr<Tensor> read_npy_stream(uint64_t size,
                                 llvm::function_ref<Status(std::span<std::byte>)> read);

/// The npy header for a tensor: version 1, C order, padded to a multiple of 64 bytes. bfloat16 is
/// declared as uint16.
std::string npy_header(const Tensor& tensor);

}  // namespace millrace::io
