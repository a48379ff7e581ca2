#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/var.h"
#include "io/byte_source.h"

/// Reads and writes parameter files of the original, byte for byte: files with one var each, and
/// combined files, which hold vars one after another without names. Layout: io/param_header.h.
namespace millrace::io {

/// A var to load and what its program declares about it.
struct ParamSpec {
  std::string name;
  VarKind kind = VarKind::kLodTensor;  ///< kLodTensor or kSelectedRows
  std::optional<DType> dtype;          ///< absent: any
  std::optional<Dims> dims;            ///< absent: any; -1 matches any extent
};

/// Options for reading files.
struct LoadOptions {
  int threads = 1;          ///< number of threads that read concurrently; >= 1
  bool as_float16 = false;  ///< convert floating-point values after reading
};

/// Values by var name.
using ParamValues = std::map<std::string, Value>;

/// Reads the only var of a file, directly into the memory of the tensor.
///
/// Errors: kInvalidData with file, var, byte offset, expected and found, for a file that is cut off
/// or has bytes left over, another dtype, other dims, or a LoD that does not match; kIo; kResource.
StatusOr<Value> load_param(const ByteSource& source, const ParamSpec& spec,
                           const LoadOptions& options = {});

/// Reads part of the elements of a stored tensor, with other dims.
///
/// \param seek  number of elements (not bytes or rows) to skip, >= 0
/// \param shape  dims of the result; the file must have seek + product(shape) elements
/// Source: spec/distributed_io.md section 4, attributes seek and shape of the op `load`.
/// Errors: as load_param(), where spec.dims are the dims of the whole tensor; kInvalidArgument.
StatusOr<Value> load_param_slice(const ByteSource& source, const ParamSpec& spec, int64_t seek,
                                 llvm::ArrayRef<int64_t> shape, const LoadOptions& options = {});

/// Reads the vars of a combined file. \param specs  in file order; the original sorts names as
/// bytes
/// Errors: as load_param(). Bytes left over mean a wrong order or a wrong list.
StatusOr<ParamValues> load_combined(const ByteSource& source, llvm::ArrayRef<ParamSpec> specs,
                                    const LoadOptions& options = {});

/// A combined file whose vars are read one at a time. Movable only. Thread-safety: concurrent
/// readers.
class CombinedParams {
 public:
  /// Reads all headers. \param specs  as for load_combined()
  /// Errors: those of load_combined() that headers reveal.
  static StatusOr<CombinedParams> open(const std::string& path, llvm::ArrayRef<ParamSpec> specs);

  /// Names of the vars, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Reads one var. Errors: kNotFound; those of load_combined().
  [[nodiscard]] StatusOr<Value> load(const std::string& name,
                                     const LoadOptions& options = {}) const;
  /// Size of the file.
  [[nodiscard]] uint64_t bytes() const { return source_.size(); }

 private:
  struct Place {
    ParamSpec spec;
    uint64_t begin = 0;
  };
  explicit CombinedParams(ByteSource source) : source_(std::move(source)) {}

  ByteSource source_;
  std::map<std::string, Place> places_;
};

/// Reads vars of a folder, each from the file with its name; a '/' in a name is a sub-folder.
/// Errors: as load_param(); kNotFound with var and path; kInvalidData for a name that leads out of
/// the folder.
StatusOr<ParamValues> load_separate(const std::string& folder, llvm::ArrayRef<ParamSpec> specs,
                                    const LoadOptions& options = {});

/// Options for writing files.
struct SaveOptions {
  Replace replace = Replace::kNo;
  bool sync = true;  ///< flush to the disk before the rename
};

/// A value to save; it is not copied.
struct NamedValue {
  std::string name;  ///< name of the var
  const Value* value = nullptr;
};

/// Writes one var to a file, directly from its memory; the file appears by rename.
/// Errors: kUsage if it exists and may not be replaced; kInvalidData for a value that is neither a
/// tensor nor selected rows or has no data; kNotFound, kIo.
Status save_param(const std::string& path, const NamedValue& value,
                  const SaveOptions& options = {});

/// Writes a combined file in the order of the list; for the original's order, sort it by name.
/// Nothing is written for an empty list. Errors: as save_param().
Status save_combined(const std::string& path, llvm::ArrayRef<NamedValue> values,
                     const SaveOptions& options = {});

/// The bytes of a combined file.
StatusOr<std::string> combined_bytes(llvm::ArrayRef<NamedValue> values);

/// Writes each value to the file with its name in a folder, which is created if missing.
/// Errors: as save_param(); kInvalidData for a name that leads out of the folder.
Status save_separate(const std::string& folder, llvm::ArrayRef<NamedValue> values,
                     const SaveOptions& options = {});

}  // namespace millrace::io
