#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "io/checkpoint/box.h"
#include "io/checkpoint/file_calls.h"

/// Distributed checkpoints as written by `save_state_dict` of the original: `<id>.metadata` and
/// `<rank>_<id>.distcp`. Only `checkpoint convert` reads them.
/// Source: spec/checkpoint.md sections 1 to 3, goldens/checkpoint.
namespace millrace::io {

/// One stored part of a tensor.
struct OriginalChunk {
  Box box;
  size_t file = 0;          ///< index in OriginalCheckpoint::files
  uint64_t data_begin = 0;  ///< offset of the first byte in the file
};

/// One tensor. The format states neither dtype nor global shape: the dtype is that of the parts,
/// the shape is computed from their extents.
struct OriginalTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;
  std::vector<OriginalChunk> chunks;  ///< cover each element exactly once
};

/// An open checkpoint. Thread-safety: concurrent readers.
class OriginalCheckpoint {
 public:
  /// \param unique_id  which of several saves in one folder to read; negative: the folder must
  ///                   contain only one save, because the original would mix several
  /// Errors: kNotFound; kInvalidData with file and tensor for anything that is malformed, missing
  /// or does not form whole tensors; kUnimplemented for names, opcodes and element types that the
  /// reader does not support.
  static StatusOr<OriginalCheckpoint> open(const std::string& folder, int64_t unique_id = -1);

  /// Sorted by name.
  [[nodiscard]] const std::vector<OriginalTensor>& tensors() const { return tensors_; }
  /// Reads a whole tensor. Errors: kResource, kIo, kInvalidData.
  [[nodiscard]] StatusOr<Tensor> load(const OriginalTensor& tensor) const;

 private:
  std::vector<OriginalTensor> tensors_;
  std::vector<std::unique_ptr<ReadableFile>> files_;
};

/// True if a folder contains a file `*.metadata`.
bool has_original_metadata(const std::string& folder);

}  // namespace millrace::io
