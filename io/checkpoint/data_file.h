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

/// Writing one safetensors file with checksums on the way.
namespace millrace::io {

/// One tensor to write: from memory, or from whoever can give its bytes piece by piece.
struct DataItem {
  SafetensorsEntry entry;             ///< name, dtype and dims; the file has its stored_form()
  std::span<const std::byte> memory;  ///< row-major; unused if `read` is set
  /// Fills `to` with the bytes from `offset` on; calls come in rising order without gaps.
  std::function<Status(uint64_t offset, std::span<std::byte> to)> read;
};

/// A file that was written.
struct DataFile {
  StoredFile file;
  std::vector<StoredBytes> items;  ///< in order of the items that were handed in; their `file` is 0
};

/// How data files are written.
struct DataFileOptions {
  uint64_t block_bytes = 1U << 20U;  ///< bytes a checksum covers; also the memory taken by `read`
  bool sync = true;                  ///< wait until the bytes are on the disk
  std::function<void(uint64_t bytes)> progress =
      {};                   ///< called with what was written since; may be null
  bool hash_aside = false;  ///< a second thread may take the checksums of what is in memory
};

/// Writes items to a new file, straight from their memory. After an error the file is gone.
/// Errors: those of lay_out_safetensors(), of `read` and of the file calls.
StatusOr<DataFile> write_data_file(FileCalls& calls, const std::string& path,
                                   const std::vector<DataItem>& items,
                                   const std::map<std::string, std::string>& metadata,
                                   const DataFileOptions& options);

}  // namespace millrace::io
