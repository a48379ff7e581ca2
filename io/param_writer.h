#pragma once

#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/types.h"
#include "io/output_file.h"
#include "io/params.h"

namespace millrace::io {

/// Writes a file of one dense var in the original's format, piece by piece, so that the pieces need
/// not be in memory together. The file appears by rename when it is complete.
///
/// Movable only. Thread-safety: one writer.
class ParamWriter {
 public:
  /// \param path  also used in errors
  /// \param dims  dims of the whole var
  /// Errors: those of OutputFile::create(); kInvalidData for dims that the format does not support.
  static StatusOr<ParamWriter> create(const std::string& path, DType dtype,
                                      llvm::ArrayRef<int64_t> dims,
                                      const SaveOptions& options = {});

  /// Appends elements; the dims of the piece do not matter. Errors: kInvalidData for another dtype,
  /// for a piece without data, and for more elements than the var has; kIo, kResource.
  Status append(const Tensor& piece);
  /// Renames the file to its path. Errors: kInvalidData if elements are missing; kIo.
  Status commit();

 private:
  ParamWriter(OutputFile file, std::string path, DType dtype, int64_t elements, bool sync)
      : file_(std::move(file)),
        path_(std::move(path)),
        dtype_(dtype),
        elements_(elements),
        sync_(sync) {}

  OutputFile file_;
  std::string path_;
  DType dtype_;
  int64_t elements_;
  int64_t written_ = 0;
  bool sync_;
};

}  // namespace millrace::io
