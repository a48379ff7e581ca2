#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "executor/compiled_ops/control.h"
#include "framework/base/status.h"
#include "ps/table/entry_policy.h"
#include "ps/table/initializer.h"

namespace millrace::ps {

/// A table on a server that grows as ids are used. Each id has a row with named columns of floats
/// (the parameter and its optimizer state). Source: spec/fleet.md section 13.
/// Thread-safety: the caller must hold mutex().
class LargeTable {
 public:
  struct Column {
    std::string name;
    size_t width = 0;
    size_t offset = 0;  ///< in a row
    Initializer initializer;
  };
  struct Row {
    std::vector<float> values;
    int64_t accesses = 0;
    bool admitted = false;
  };

  /// Parses a description of lookup_sparse_table_init: param, columns, their widths, mode,
  /// gradient, other names, initializers and entry rule, separated by colons; lists are separated
  /// by commas.
  /// Errors: kInvalidProgram with the text.
  static StatusOr<std::unique_ptr<LargeTable>> parse(const std::string& description);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  [[nodiscard]] size_t size() const { return rows_.size(); }
  /// Errors: kNotFound naming the column.
  [[nodiscard]] StatusOr<const Column*> column(const std::string& name) const;
  /// The row of an id; null if there is none.
  [[nodiscard]] Row* find(int64_t id);
  /// The row of an id, created with initial values if there is none.
  Row& make(int64_t id);
  /// Counts an access; after enough accesses, the entry rule admits the row.
  void access(int64_t id, Row& row) const;

 private:
  std::string name_;
  std::vector<Column> columns_;
  size_t width_ = 0;
  EntryPolicy entry_;
  std::mutex mutex_;
  std::unordered_map<int64_t, Row> rows_;
};

/// The large tables of one server, by name. Thread-safety: all members.
class LargeTables {
 public:
  /// Adds a table. If one of that name exists, it is kept, because startup programs may run again.
  void add(std::unique_ptr<LargeTable> table);
  /// Errors: kNotFound naming the table.
  [[nodiscard]] StatusOr<LargeTable*> find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<LargeTable>> tables_;
};

/// Adds lookup_sparse_table_init, _read, _write, _merge, _fuse_sgd and _fuse_adam.
void add_large_table_controls(executor::ControlRegistry& registry,
                              const std::shared_ptr<LargeTables>& tables);

}  // namespace millrace::ps
