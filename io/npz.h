#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/zip_stream.h"

namespace millrace::io {

/// Limits for reading an archive.
struct NpzLimits {
  int64_t max_members = 1'000'000;
  int64_t max_total_bytes = int64_t{1} << 40;        ///< all members together, unpacked
  int64_t max_ratio = 64;                            ///< of unpacked bytes to the size of the file
  int64_t unlimited_ratio_bytes = int64_t{1} << 30;  ///< max_ratio does not apply up to this size
};

/// Reads the arrays of an npz archive by member name (without ".npy"); members are stored or
/// deflated.
///
/// A member whose stated size is impossible for its compressed bytes is rejected before anything is
/// allocated; checksums are verified.
/// Errors: kNotFound, kIo; kInvalidData with file and member; kResource above a limit.
StatusOr<std::map<std::string, Tensor>> read_npz(const std::string& path,
                                                 const NpzLimits& limits = {});

/// Reads the values of an npz archive by var name, with the naming conventions of the command line:
/// `<var>`; `<var>.lod0`, `<var>.lod1`, ... (int64 offsets); `<var>.rows` and `<var>.height` for
/// selected rows; `<var>.0`, `<var>.1`, ... for an array, with `<var>.length` if elements may be
/// missing (never written); `<var>.dtype` = "bfloat16" next to uint16 bits, which are refused
/// without it. Prefixes such as "step0/" are part of the name.
/// Errors: as read_npz(); kInvalidData for inconsistent companion members.
StatusOr<std::map<std::string, Value>> read_values(const std::string& path,
                                                   const NpzLimits& limits = {});

/// An open npz archive whose values are read one at a time. Movable only; not thread-safe.
class NpzFile {
 public:
  /// Reads the table of members. Errors: those of read_npz() that the table reveals.
  static StatusOr<NpzFile> open(const std::string& path, const NpzLimits& limits = {});
  NpzFile(NpzFile&& other) noexcept;
  NpzFile& operator=(NpzFile&& other) noexcept;
  ~NpzFile();

  /// Names of the values (conventions of read_values()), sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Reads one value. Errors: those of read_values(); kNotFound.
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const;
  /// Total bytes of all members, unpacked.
  [[nodiscard]] uint64_t bytes() const;

 private:
  struct Parts;
  explicit NpzFile(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Writes an npz archive value by value, with the conventions of read_values(). Values without
/// content are skipped. Not thread-safe.
class NpzStream {
 public:
  explicit NpzStream(ZipStream::Sink sink) : zip_(std::move(sink)) {}
  /// Errors: kInvalidData for a value that no convention covers, and for two members with one name;
  /// those of the sink.
  Status add(const std::string& name, const Value& value);
  Status finish() { return zip_.finish(); }

 private:
  Status add_array(const std::string& name, const Tensor& tensor);
  Status add_integers(const std::string& name, llvm::ArrayRef<int64_t> values, bool scalar);
  Status add_tensor(const std::string& name, const Tensor& tensor);

  ZipStream zip_;
};

/// The bytes of an npz archive of the values, with the same conventions: stored, ordered by name,
/// with a fixed time stamp, so equal values produce equal bytes. Values without content are
/// skipped.
/// Errors: those of NpzStream::add().
StatusOr<std::string> npz_bytes(const std::map<std::string, Value>& values);

}  // namespace millrace::io
