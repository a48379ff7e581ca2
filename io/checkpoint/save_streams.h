#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/types.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save.h"
#include "io/checkpoint/state.h"
#include "io/checkpoint/tensor_file.h"

namespace millrace::io {

/// A tensor whose bytes are read while it is written.
struct StreamedTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;
  Lod lod;
  /// Fills `to` with the bytes starting at `offset`. Calls are in increasing order without gaps.
  std::function<Status(uint64_t offset, std::span<std::byte> to)> read;
  /// For tables: the row numbers, dims[0] of them, or a function that provides their bytes in the
  /// way of `read`. Dense tensors have none.
  bool is_table = false;
  std::vector<int64_t> rows;
  std::function<Status(uint64_t offset, std::span<std::byte> to)> read_rows;
  int64_t height = 0;
};

/// Saves a checkpoint of one rank from streams, in bounded memory: one block of options.block_bytes
/// besides the memory of the streams.
/// \param arrays  their elements are among the tensors
/// Errors: those of the streams and of save_state_dict(); kInvalidArgument for a name that occurs
/// twice and for row numbers that do not match the dims.
Status save_streams(const std::vector<StreamedTensor>& tensors,
                    const std::vector<LocalRecord>& records,
                    const std::map<std::string, std::string>& user, const std::string& folder,
                    const CheckpointSaveOptions& options, std::vector<StoredArray> arrays = {});

/// Saves a checkpoint of one rank. Values are loaded one at a time and released after use; some are
/// loaded twice.
/// \param load  returns the value of an entry by its name
/// Errors: as save_streams(), and those of `load`; kInvalidData for a value that does not match its
/// entry.
Status save_values(const std::vector<TensorFileEntry>& entries,
                   const std::function<StatusOr<Value>(const std::string&)>& load,
                   const std::string& folder, const CheckpointSaveOptions& options);

}  // namespace millrace::io
