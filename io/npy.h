#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::io {

/// Reads one npy file from memory: versions 1 to 3, C or Fortran order, little-endian or not; bool,
/// integers of 8 to 64 bits (unsigned 32 and 64 bits if the values fit their signed neighbours),
/// float16, float32, float64, complex64, complex128. uint16 comes as kBfloat16, the only use that
/// the original has for it. Objects are refused, nothing is unpickled.
///
/// Never allocates more than the bytes back. Errors: kInvalidData with what was expected and found.
StatusOr<Tensor> parse_npy(std::string_view bytes);

/// parse_npy() of a file, read straight into the tensor's memory.
/// Errors: also kNotFound, kIo, kResource, with the path.
StatusOr<Tensor> read_npy(const std::string& path);

/// parse_npy() of bytes that come front to back.
/// \param size  of the npy file; what it claims beyond is refused before memory is taken
/// \param read  fills a span with the next bytes
/// Errors: also those of read.
StatusOr<Tensor> read_npy_stream(uint64_t size,
                                 llvm::function_ref<Status(std::span<std::byte>)> read);

/// Header of the npy file for a tensor: version 1, C order, padded to 64 bytes. bfloat16 is
/// declared as uint16.
std::string npy_header(const Tensor& tensor);

}  // namespace millrace::io
