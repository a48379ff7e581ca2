#include "io/param_writer.h"

#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "io/param_header.h"

namespace millrace::io {

StatusOr<ParamWriter> ParamWriter::create(const std::string& path, DType dtype,
                                          llvm::ArrayRef<int64_t> dims,
                                          const SaveOptions& options) {
  const std::optional<int64_t> elements = element_count(dims);
  int64_t bytes = 0;
  if (!elements || *elements < 0 || __builtin_mul_overflow(*elements, dtype_size(dtype), &bytes)) {
    return InvalidData("a var of {} [{}] cannot be saved", dtype_name(dtype), fmt::join(dims, ", "))
        .in_file(path);
  }
  StatusOr<std::string> header = tensor_header_bytes(dtype, dims);
  if (!header.ok()) return std::move(header).status().in_file(path);
  MILLRACE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, options.replace));
  const std::string_view piece = *header;
  MILLRACE_RETURN_IF_ERROR(file.write({&piece, 1}));
  return ParamWriter(std::move(file), path, dtype, *elements, options.sync);
}

Status ParamWriter::append(const Tensor& piece) {
  if (!piece.initialized() || piece.dtype() != dtype_ || piece.numel() > elements_ - written_) {
    return InvalidData("element {} of {}: expected a piece of {} of at most {} elements, found {}",
                       written_, elements_, dtype_name(dtype_), elements_ - written_,
                       describe(piece))
        .in_file(path_);
  }
  const std::string_view bytes(reinterpret_cast<const char*>(piece.raw()),
                               static_cast<size_t>(piece.bytes()));
  MILLRACE_RETURN_IF_ERROR(file_.write({&bytes, 1}));
  written_ += piece.numel();
  return Ok();
}

Status ParamWriter::commit() {
  if (written_ != elements_)
    return InvalidData("expected {} elements, found {}", elements_, written_).in_file(path_);
  return file_.commit(sync_);
}

}  // namespace millrace::io
