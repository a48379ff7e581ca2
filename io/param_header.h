#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/types.h"
#include "framework/var.h"
#include "io/byte_source.h"

/// The layout of one stored var as the original writes it (spec/model_format.md section 4). LoD
/// tensor: version, LoD, tensor. Selected rows: version, rows, height, tensor. Tensor: version,
/// size of the descriptor, descriptor (protobuf), data. Integers are little-endian; there is no
/// padding.
namespace millrace::io {

/// What a file states about a stored var before its data.
struct ParamHeader {
  VarKind kind = VarKind::kLodTensor;  ///< kLodTensor or kSelectedRows
  DType dtype = DType::kFloat32;
  Dims dims;                  ///< none negative
  Lod lod;                    ///< consistent with dims
  std::vector<int64_t> rows;  ///< kSelectedRows: dims[0] numbers in [0, height)
  int64_t height = 0;
  uint64_t begin = 0;       ///< offset of the first byte of the var
  uint64_t data_begin = 0;  ///< offset of the first byte of its elements
  uint64_t data_bytes = 0;  ///< within the file
};

/// Reads the vars of a file sequentially. Not thread-safe.
///
/// Each length is checked against the remaining size of the file before memory is allocated.
class ParamReader {
 public:
  /// \param source  must outlive the reader  \param begin  offset of the first var
  explicit ParamReader(const ByteSource& source, uint64_t begin = 0);

  /// Offset of the next var.
  [[nodiscard]] uint64_t position() const { return at_; }
  [[nodiscard]] bool at_end() const { return at_ == source_->size(); }

  /// Reads the header of the next var and moves past its data. The file does not state which of the
  /// two kinds it holds, so the caller must. Errors: kInvalidData with byte offset, expected and
  /// found; kIo.
  StatusOr<ParamHeader> next(VarKind kind);

  /// Copies bytes that were already buffered while reading headers; false if not all of them were.
  [[nodiscard]] bool copy_buffered(uint64_t offset, std::span<std::byte> to) const;

 private:
  [[nodiscard]] uint64_t left() const { return source_->size() - at_; }
  Status fill(uint64_t bytes);
  Status take(std::span<std::byte> to, const char* what);
  template <typename T>
  StatusOr<T> number(const char* what);
  StatusOr<std::vector<int64_t>> numbers(uint64_t bytes, const char* what);
  Status read_lod(ParamHeader& header);
  Status read_rows(ParamHeader& header);
  Status read_tensor(ParamHeader& header);

  const ByteSource* source_;
  uint64_t at_ = 0;
  std::vector<std::byte> window_;  ///< bytes of the file starting at window_begin_
  uint64_t window_begin_ = 0;
};

/// The header bytes of a tensor or of selected rows.
/// Errors: kInvalidData for another kind of value, a value without data, or one that next() would
/// reject.
StatusOr<std::string> param_header_bytes(const Value& value);

/// The same for a dense tensor without LoD. Errors: kInvalidData for more dims than next() accepts.
StatusOr<std::string> tensor_header_bytes(DType dtype, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::io
