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

/// How much of an archive is read.
struct NpzLimits {
  int64_t max_members = 1'000'000;
  int64_t max_total_bytes = int64_t{1} << 40;  ///< of all members, unpacked
  int64_t max_ratio = 64;  ///< unpacked bytes for each byte of the file, where there are more than:
  int64_t unlimited_ratio_bytes = int64_t{1} << 30;
};

/// The arrays of an npz archive by member name (without ".npy"), stored or deflated.
///
/// A member whose stated size its packed bytes cannot give is refused before anything is allocated,
/// and checksums are compared.
/// Errors: kNotFound, kIo; kInvalidData with file and member; kResource above a limit.
StatusOr<std::map<std::string, Tensor>> read_npz(const std::string& path,
                                                 const NpzLimits& limits = {});

/// Values of an npz archive by var name, after the conventions of the command line: `<var>`;
/// `<var>.lod0`, `<var>.lod1`, ... (int64 offsets); `<var>.rows` and `<var>.height` for selected
/// rows; `<var>.0`, `<var>.1`, ... for an array, with `<var>.length` where elements may be missing
/// (never written); `<var>.dtype` = "bfloat16" beside uint16 bits. Prefixes such as "step0/" stay
/// part of the name.
/// Errors: as read_npz(); kInvalidData for companions that do not fit.
StatusOr<std::map<std::string, Value>> read_values(const std::string& path,
                                                   const NpzLimits& limits = {});

/// An npz archive that is open, whose values are read one at a time. Movable only; not thread-safe.
class NpzFile {
 public:
  /// Reads the table of members. Errors: those of read_npz() that it shows.
  static StatusOr<NpzFile> open(const std::string& path, const NpzLimits& limits = {});
  NpzFile(NpzFile&& other) noexcept;
  NpzFile& operator=(NpzFile&& other) noexcept;
  ~NpzFile();

  /// Of the values after the conventions of read_values(), sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Errors: those of read_values(); kNotFound.
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const;
  /// Of all members, unpacked.
  [[nodiscard]] uint64_t bytes() const;

 private:
  struct Parts;
  explicit NpzFile(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Writes an npz archive value by value, after the conventions of read_values(). Values without
/// content are left out. Not thread-safe.
class NpzStream {
 public:
  explicit NpzStream(ZipStream::Sink sink) : zip_(std::move(sink)) {}
  /// Errors: kInvalidData for values that no convention covers, and for two members of one name;
  /// those of the sink.
  Status add(const std::string& name, const Value& value);
  Status finish() { return zip_.finish(); }

 private:
  Status add_array(const std::string& name, const Tensor& tensor);
  Status add_integers(const std::string& name, llvm::ArrayRef<int64_t> values, bool scalar);
  Status add_tensor(const std::string& name, const Tensor& tensor);

  ZipStream zip_;
};

/// An npz archive of the values after the same conventions, stored, in order of names, with a fixed
/// time stamp: same values, same bytes. Values without content are left out.
/// Errors: those of NpzStream::add().
StatusOr<std::string> npz_bytes(const std::map<std::string, Value>& values);

}  // namespace millrace::io
