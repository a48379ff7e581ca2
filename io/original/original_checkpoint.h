#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "io/checkpoint/box.h"
#include "io/checkpoint/file_calls.h"

/// Distributed checkpoints as `save_state_dict` of the original writes them: `<id>.metadata` and
/// `<rank>_<id>.distcp`. Read only by `checkpoint convert`.
/// Source: spec/checkpoint.md sections 1 to 3, goldens/checkpoint.
namespace millrace::io {

/// One stored piece of a tensor.
struct OriginalChunk {
  Box box;
  size_t file = 0;          ///< index in OriginalCheckpoint::files
  uint64_t data_begin = 0;  ///< first byte in the file
};

/// One tensor. The format states neither dtype nor global shape: the former is that of the pieces,
/// the latter what they reach to.
struct OriginalTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;
  std::vector<OriginalChunk> chunks;  ///< hold each element exactly once
};

/// A checkpoint that is open. Thread-safety: concurrent readers.
class OriginalCheckpoint {
 public:
  /// \param unique_id  which of several saves in one folder; negative: there must be one only,
  ///                   because the original mixes several
  /// Errors: kNotFound; kInvalidData with file and tensor for anything that is malformed, missing
  /// or does not make up whole tensors; kUnimplemented for names, opcodes and element types that
  /// the reader does not know.
  static StatusOr<OriginalCheckpoint> open(const std::string& folder, int64_t unique_id = -1);

  /// By name.
  [[nodiscard]] const std::vector<OriginalTensor>& tensors() const { return tensors_; }
  /// A whole tensor. Errors: kResource, kIo, kInvalidData.
  [[nodiscard]] StatusOr<Tensor> load(const OriginalTensor& tensor) const;

 private:
  std::vector<OriginalTensor> tensors_;
  std::vector<std::unique_ptr<ReadableFile>> files_;
};

/// True if a folder holds a file `*.metadata`.
bool has_original_metadata(const std::string& folder);

}  // namespace millrace::io
