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

/// Parameter files of the original, byte for byte, in both directions: one file a var, and combined
/// files, which hold vars one after another without names. Layout: io/param_header.h.
namespace millrace::io {

/// A var to load and what its program says of it.
struct ParamSpec {
  std::string name;
  VarKind kind = VarKind::kLodTensor;  ///< kLodTensor or kSelectedRows
  std::optional<DType> dtype;          ///< absent: any
  std::optional<Dims> dims;            ///< absent: any; -1 fits any extent
};

/// How files are read.
struct LoadOptions {
  int threads = 1;          ///< that read at the same time; >= 1
  bool as_float16 = false;  ///< floating values are converted after reading
};

/// Values by var name.
using ParamValues = std::map<std::string, Value>;

/// The one var of a file. Elements are read straight into the memory of the tensor.
///
/// Errors: kInvalidData with file, var, byte, expected and found: a file that is cut off, has bytes
/// left over, another dtype, other dims, or a LoD that does not fit; kIo; kResource.
StatusOr<Value> load_param(const ByteSource& source, const ParamSpec& spec,
                           const LoadOptions& options = {});

/// Part of the elements of a stored tensor, with other dims.
///
/// \param seek   elements (neither bytes nor rows) to skip, >= 0
/// \param shape  dims of the result; seek + product(shape) elements must be there
/// Source: spec/distributed_io.md section 4, attributes seek and shape of the op `load`.
/// Errors: as load_param(), whose dims of the spec are those of the whole tensor; kInvalidArgument.
StatusOr<Value> load_param_slice(const ByteSource& source, const ParamSpec& spec, int64_t seek,
                                 llvm::ArrayRef<int64_t> shape, const LoadOptions& options = {});

/// Vars of a combined file. \param specs  in the order of the file; the original sorts names as
/// bytes. Errors: as load_param(); bytes left over mean a wrong order or a wrong list.
StatusOr<ParamValues> load_combined(const ByteSource& source, llvm::ArrayRef<ParamSpec> specs,
                                    const LoadOptions& options = {});

/// A combined file whose vars are read one at a time. Movable only. Thread-safety: concurrent
/// readers.
class CombinedParams {
 public:
  /// Reads all headers. \param specs  as load_combined() takes them. Errors: those of
  /// load_combined() that headers show.
  static StatusOr<CombinedParams> open(const std::string& path, llvm::ArrayRef<ParamSpec> specs);

  /// Sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Errors: kNotFound; those of load_combined().
  [[nodiscard]] StatusOr<Value> load(const std::string& name,
                                     const LoadOptions& options = {}) const;
  /// Of the file.
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

/// Vars of a folder, each from the file of its name; a '/' in a name is a sub-folder.
/// Errors: as load_param(); kNotFound with var and path; kInvalidData for a name that leads out of
/// the folder.
StatusOr<ParamValues> load_separate(const std::string& folder, llvm::ArrayRef<ParamSpec> specs,
                                    const LoadOptions& options = {});

/// How files are written.
struct SaveOptions {
  Replace replace = Replace::kNo;
  bool sync = true;  ///< flush to the disk before the file gets its name
};

/// A value that stays where it is.
struct NamedValue {
  std::string name;  ///< of the var
  const Value* value = nullptr;
};

/// Writes one var to a file, straight from its memory; the file appears by rename.
/// Errors: kUsage if it exists and may not be replaced; kInvalidData for a value that is neither a
/// tensor nor selected rows or has no data; kNotFound, kIo.
Status save_param(const std::string& path, const NamedValue& value,
                  const SaveOptions& options = {});

/// Writes a combined file in the order of the list; sort it by name for the original's order.
/// Nothing is written for an empty list. Errors: as save_param().
Status save_combined(const std::string& path, llvm::ArrayRef<NamedValue> values,
                     const SaveOptions& options = {});

/// Bytes of a combined file.
StatusOr<std::string> combined_bytes(llvm::ArrayRef<NamedValue> values);

/// Writes each value to the file of its name in a folder, which is made if it is not there.
/// Errors: as save_param(); kInvalidData for a name that leads out of the folder.
Status save_separate(const std::string& folder, llvm::ArrayRef<NamedValue> values,
                     const SaveOptions& options = {});

}  // namespace millrace::io
