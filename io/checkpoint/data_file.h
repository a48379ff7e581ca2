#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/safetensors.h"

/// Writes one safetensors file and computes its checksums at the same time.
namespace millrace::io {

/// One tensor to write: in memory, or read piece by piece through a function.
struct DataItem {
  SafetensorsEntry entry;             ///< name, dtype and dims; the file has its stored_form()
  std::span<const std::byte> memory;  ///< row-major; ignored if `read` is set
  /// Fills `to` with the bytes starting at `offset`. Calls are in increasing order without gaps.
  std::function<Status(uint64_t offset, std::span<std::byte> to)> read;
};

/// The result of writing a file.
struct DataFile {
  StoredFile file;
  std::vector<StoredBytes> items;  ///< in the order of the given items; their `file` is 0
};

/// Options for writing a data file.
struct DataFileOptions {
  uint64_t block_bytes = 1U << 20U;  ///< bytes per checksum; also the size of the buffer for `read`
  bool sync = true;                  ///< wait until the bytes are on the disk
  std::function<void(uint64_t bytes)> progress =
      {};                   ///< called with the bytes written since the last call; may be null
  bool hash_aside = false;  ///< a second thread may compute the checksums of items in memory
};

/// Writes items to a new file, directly from their memory. The file is removed after an error.
/// Errors: those of lay_out_safetensors(), of `read` and of the file calls.
StatusOr<DataFile> write_data_file(FileCalls& calls, const std::string& path,
                                   const std::vector<DataItem>& items,
                                   const std::map<std::string, std::string>& metadata,
                                   const DataFileOptions& options);

}  // namespace millrace::io
