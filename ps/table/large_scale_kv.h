#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// The sparse tables of a server by the name of their var, with the save and load functions of the
/// original's LargeScaleKV. Files: DIR/<origin>/<var>, exact (ps/table/table_files.h).
///
/// Thread-safety: call add() before all other functions.
class LargeScaleKv {
 public:
  /// \param var     name on this server ("emb.block1")
  /// \param origin  name of the whole table ("emb")
  /// Errors: kInvalidArgument for a name that exists already, or that is not a valid file name.
  Status add(const std::string& var, const std::string& origin, std::shared_ptr<SparseTable> table);

  /// \returns rows written
  /// Errors: kNotFound for the var; kIo with the path.
  StatusOr<int64_t> save(const std::string& var, const std::string& folder) const;
  /// \returns rows loaded
  /// Errors: kNotFound for the var or file; kInvalidData.
  StatusOr<int64_t> load(const std::string& var, const std::string& folder) const;
  /// Number of rows in memory. Errors: kNotFound.
  [[nodiscard]] StatusOr<int64_t> size(const std::string& var) const;

 private:
  struct Entry {
    std::string origin;
    std::shared_ptr<SparseTable> table;
  };
  StatusOr<const Entry*> find(const std::string& var) const;

  std::map<std::string, Entry> entries_;
};

}  // namespace millrace::ps
