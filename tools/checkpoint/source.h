#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/tensor_file.h"
#include "tools/checkpoint/options.h"

namespace millrace::tools {

/// Named values in a file or folder of some form.
class TensorSource {
 public:
  TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;
  virtual ~TensorSource();

  /// Sorted, each once.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  /// A value of names(). Errors: kInvalidData, kIo, kResource.
  [[nodiscard]] virtual StatusOr<Value> load(const std::string& name) const = 0;
  /// What it is, without its bytes where the source can tell. Errors: as load(); kUnimplemented for
  /// values that safetensors files do not hold.
  [[nodiscard]] virtual StatusOr<io::TensorFileEntry> facts(const std::string& name) const;
  /// Bytes of all values, about; for progress.
  [[nodiscard]] virtual uint64_t bytes() const = 0;
  /// Where a part of a value lies in snapshots of servers.
  struct Slice {
    size_t server = 0;
    std::string name;   ///< on that server
    int64_t first = 0;  ///< element of the whole value; of rows of a table 0
    int64_t count = 0;  ///< elements
  };
  /// The parts of a value; none for sources that are no snapshots of servers.
  [[nodiscard]] virtual std::vector<Slice> slices(const std::string& name) const;
  /// "checkpoint", "safetensors", ...
  [[nodiscard]] virtual std::string form() const = 0;
};

/// Opens what a path means. flags.from "auto" finds the form by content: a folder with a manifest
/// or with step-<n> sub-folders, a folder of the original's distributed checkpoint, a safetensors
/// file, an npz archive; a file of another kind is a combined parameter file, which needs
/// flags.program for its names, and any other folder has one file a var.
///
/// Sources hold one value in memory at a time.
/// Errors: kNotFound, kInvalidData, kUsage for a combined file without program.
StatusOr<std::unique_ptr<TensorSource>> open_source(const Tool& tool, const CheckpointFlags& flags,
                                                    const std::string& path);

}  // namespace millrace::tools
