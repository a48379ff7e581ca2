#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/tensor_file.h"

namespace millrace::jobs {

/// Named values in a file or folder of some form.
class TensorSource {
 public:
  TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;
  virtual ~TensorSource();

  /// Sorted and unique.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  /// A value of names(). Errors: kInvalidData, kIo, kResource.
  [[nodiscard]] virtual StatusOr<Value> load(const std::string& name) const = 0;
  /// Name, dtype and dims of a value, without reading its bytes where the source allows it. Errors:
  /// as load(); kUnimplemented for values that safetensors files cannot hold.
  [[nodiscard]] virtual StatusOr<io::TensorFileEntry> facts(const std::string& name) const;
  /// Approximate bytes of all values; for progress.
  [[nodiscard]] virtual uint64_t bytes() const = 0;
  /// Where a slice of a value is in the snapshots of servers.
  struct Slice {
    size_t server = 0;
    std::string name;   ///< on that server
    int64_t first = 0;  ///< first element, counted in the whole value; 0 for rows of a table
    int64_t count = 0;  ///< elements
  };
  /// The slices of a value; empty for sources other than snapshots of servers.
  [[nodiscard]] virtual std::vector<Slice> slices(const std::string& name) const;
  /// "checkpoint", "safetensors", ...
  [[nodiscard]] virtual std::string form() const = 0;
  /// The training step of the values; -1 where the form does not say it.
  [[nodiscard]] virtual int64_t step() const;
};

}  // namespace millrace::jobs
