#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::jobs {

/// Training examples in memory: the rows of every var that is fed.
class DataSet {
 public:
  /// Reads examples.
  ///
  /// \param path     `.npz`: arrays by var name, rows in dim 0. Otherwise csv: numbers separated by
  /// commas; a first line without any number is a header.
  /// \param columns  csv only: "x=0:12,y=13", columns from 0, ends included
  /// \param program  declares dtypes and dims of the vars; dims but the first must be known
  /// Errors: kUsage for a bad column list, kInvalidData with file, line and column.
  static StatusOr<DataSet> read(const std::string& path, const std::string& columns,
                                const Program& program);

  [[nodiscard]] int64_t rows() const { return rows_; }
  /// True if batches have this var.
  [[nodiscard]] bool has(const std::string& name) const { return columns_.contains(name); }
  /// Copies the rows with these numbers.
  [[nodiscard]] StatusOr<executor::NamedValues> batch(llvm::ArrayRef<int64_t> rows) const;

 private:
  Status add(const std::string& name, Tensor tensor);

  std::map<std::string, Tensor> columns_;
  int64_t rows_ = -1;
};

}  // namespace millrace::jobs
