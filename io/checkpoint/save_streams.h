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

/// A tensor whose bytes are read while they are written.
struct StreamedTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;
  Lod lod;
  /// Fills `to` with the bytes from `offset` on; calls come in rising order without gaps.
  std::function<Status(uint64_t offset, std::span<std::byte> to)> read;
  /// The rows of a table: their numbers, as many as dims[0], or whoever gives their bytes as `read`
  /// does. Dense tensors have none.
  bool is_table = false;
  std::vector<int64_t> rows;
  std::function<Status(uint64_t offset, std::span<std::byte> to)> read_rows;
  int64_t height = 0;
};

/// Saves a checkpoint of one rank out of streams, in bounded memory: a block of options.block_bytes
/// besides what the streams take.
/// \param arrays  whose elements are among the tensors
/// Errors: those of the streams and of save_state_dict(); kInvalidArgument for a name that is there
/// twice and for rows that do not fit the dims.
Status save_streams(const std::vector<StreamedTensor>& tensors,
                    const std::vector<LocalRecord>& records,
                    const std::map<std::string, std::string>& user, const std::string& folder,
                    const CheckpointSaveOptions& options, std::vector<StoredArray> arrays = {});

/// Saves a checkpoint of one rank, whose values are asked for one after another and let go, some of
/// them twice. \param load  gives the value of an entry by its name
/// Errors: as save_streams(), and those of `load`; kInvalidData for a value that is not as its
/// entry says.
Status save_values(const std::vector<TensorFileEntry>& entries,
                   const std::function<StatusOr<Value>(const std::string&)>& load,
                   const std::string& folder, const CheckpointSaveOptions& options);

}  // namespace millrace::io
