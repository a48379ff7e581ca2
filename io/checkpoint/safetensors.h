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

/// The safetensors layout: 8 bytes little-endian length of the header, the header (JSON, padded
/// with blanks), the data. Every byte of the data belongs to exactly one tensor.
namespace millrace::io {

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;
  uint64_t begin = 0;  ///< first byte, counted from the start of the file
  uint64_t end = 0;    ///< behind the last byte
};

/// Everything of a file but the data.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        ///< in order of their bytes
  std::map<std::string, std::string> metadata;  ///< free text of the writer
  uint64_t data_begin = 0;                      ///< first byte of the data
};

/// How large a header may be.
struct SafetensorsLimits {
  uint64_t max_header_bytes = 100'000'000;  ///< as the public library
  size_t max_name_bytes = 4096;
  size_t max_rank = 16;
};

/// Reads and checks a header: its length against the file, one member of each name, dims whose
/// product is that of the byte range, ranges that cover the data without gap or overlap.
/// Errors: kInvalidData with file, tensor, expected and found; kUnimplemented for an element type
/// that tensors cannot have; kResource, kIo.
StatusOr<SafetensorsHeader> read_safetensors_header(const ReadableFile& file,
                                                    const SafetensorsLimits& limits = {});

/// An entry as the layout can hold it: elements that it has no type for become several of one that
/// it has. complex128 is float64 with one axis of 2 more, for real and imaginary part; all others
/// stay as they are.
SafetensorsEntry stored_form(SafetensorsEntry entry);

/// Orders entries as files hold them (large element types first, so that each tensor is aligned to
/// its elements; then by name) and gives each its bytes.
/// \returns the length word and the header. The data begins at a multiple of 64 bytes.
/// Errors: kInvalidArgument for a name that is there twice, is "__metadata__" or no UTF-8, and for
/// dims out of range and more than 16 of them; kUnimplemented for an element type that the layout
/// does not have.
StatusOr<std::string> lay_out_safetensors(std::vector<SafetensorsEntry>& entries,
                                          const std::map<std::string, std::string>& metadata);

/// Name of an element type in headers ("F32"); empty if the layout does not have it.
std::string_view safetensors_dtype(DType dtype);

}  // namespace millrace::io
