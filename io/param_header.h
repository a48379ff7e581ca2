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

/// The layout of one stored var, as the original writes it (spec/model_format.md section 4): LoD
/// tensor = version, LoD, tensor; selected rows = version, rows, height, tensor; tensor = version,
/// size of the descriptor, descriptor (protobuf), data. Integers are little-endian, nothing is
/// padded.
namespace millrace::io {

/// What a file says of a stored var before its data.
struct ParamHeader {
  VarKind kind = VarKind::kLodTensor;  ///< kLodTensor or kSelectedRows
  DType dtype = DType::kFloat32;
  Dims dims;                  ///< none negative
  Lod lod;                    ///< fits dims
  std::vector<int64_t> rows;  ///< of kSelectedRows: dims[0] numbers in [0, height)
  int64_t height = 0;
  uint64_t begin = 0;       ///< first byte of the var
  uint64_t data_begin = 0;  ///< first byte of its elements
  uint64_t data_bytes = 0;  ///< the file has them
};

/// Reads the vars of a file one after another. Not thread-safe.
///
/// Each length is compared with what is left of the file before anything is allocated by it.
class ParamReader {
 public:
  /// \param source  must outlive the reader  \param begin  where the first var begins
  explicit ParamReader(const ByteSource& source, uint64_t begin = 0);

  /// Where the next var begins.
  [[nodiscard]] uint64_t position() const { return at_; }
  [[nodiscard]] bool at_end() const { return at_ == source_->size(); }

  /// The header of the next var; the reader then stands behind its data. The file does not say
  /// which of the two kinds it holds. Errors: kInvalidData with byte, expected and found; kIo.
  StatusOr<ParamHeader> next(VarKind kind);

  /// Copies bytes that reading headers brought in anyway; false if they are not all there.
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
  std::vector<std::byte> window_;  ///< bytes from window_begin_ on
  uint64_t window_begin_ = 0;
};

/// The bytes before the elements of a tensor or of selected rows.
/// Errors: kInvalidData for another kind of value, one without data or one that next() would
/// refuse.
StatusOr<std::string> param_header_bytes(const Value& value);

/// The same of a dense tensor without LoD. Errors: kInvalidData for more dims than next() takes.
StatusOr<std::string> tensor_header_bytes(DType dtype, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::io
