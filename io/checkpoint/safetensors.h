#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/types.h"
#include "framework/var.h"
#include "io/checkpoint/file_calls.h"

/// The safetensors layout: 8 bytes with the length of the header (little-endian), the header (JSON,
/// padded with blanks), the data. Every byte of the data belongs to exactly one tensor.
namespace millrace::io {

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;
  uint64_t begin = 0;  ///< offset of the first byte in the file
  uint64_t end = 0;    ///< one past the last byte
};

/// Everything in a file except the data.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        ///< in file order
  std::map<std::string, std::string> metadata;  ///< free text from the writer
  uint64_t data_begin = 0;                      ///< offset of the first byte of the data
};

/// Limits of a header.
struct SafetensorsLimits {
  uint64_t max_header_bytes = 100'000'000;  ///< as in the public safetensors library
  size_t max_name_bytes = 4096;
  size_t max_rank = 16;
};

/// Reads and checks a header: its length against the file size, no duplicate members, dims whose
/// product matches the byte range, ranges that cover the data without gap or overlap.
/// Errors: kInvalidData with file, tensor, expected and found; kUnimplemented for an element type
/// that tensors do not support; kResource, kIo.
StatusOr<SafetensorsHeader> read_safetensors_header(const ReadableFile& file,
                                                    const SafetensorsLimits& limits = {});

/// An entry as it is stored in a file. complex128, which the format does not have, is stored as
/// float64 with an additional last axis of 2 for real and imaginary part; all other types are
/// unchanged.
SafetensorsEntry stored_form(SafetensorsEntry entry);

/// Sorts entries into file order (large element types first, so that each tensor is aligned to its
/// elements; then by name) and assigns byte ranges.
/// \returns the length word and the header. The data begins at a multiple of 64 bytes.
/// Errors: kInvalidArgument for a name that occurs twice, is "__metadata__" or is not UTF-8, for
/// dims out of range and for more than 16 dims; kUnimplemented for an element type that the format
/// does not have.
StatusOr<std::string> lay_out_safetensors(std::vector<SafetensorsEntry>& entries,
                                          const std::map<std::string, std::string>& metadata);

/// Name of an element type in headers ("F32"); empty if the format does not have it.
std::string_view safetensors_dtype(DType dtype);

}  // namespace millrace::io
