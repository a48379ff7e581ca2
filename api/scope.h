#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/array.h"
#include "framework/base/status.h"

namespace millrace::api {

struct Internals;

/// Some rows of a matrix, as sparse gradients and tables have them (SelectedRows of fluid).
struct Rows {
  std::vector<int64_t> rows;  ///< row numbers in any order; a repeated row is a sum
  int64_t height = 0;         ///< number of rows of the whole matrix
  Array values;               ///< dims[0] is rows.size(); row i belongs to rows[i]
};

/// Variables by name. Executors read and write them, and they stay between runs.
///
/// A handle: copies refer to the same variables, which live as long as a handle, or anything that
/// was prepared for them, does. get() and set() copy.
/// Thread-safety: one call at a time per scope, runs of programs included; different scopes are
/// independent.
class Scope {
 public:
  /// An empty scope.
  Scope();
  Scope(const Scope&);
  Scope& operator=(const Scope&);
  ~Scope();

  /// Names of the vars that have a value, sorted as bytes.
  [[nodiscard]] std::vector<std::string> names() const;
  /// True if there is a var of that name with a value.
  [[nodiscard]] bool has(const std::string& name) const;

  /// The value of a dense var, in row-major order and with its LoD. Errors: kNotFound without a
  /// value; kInvalidArgument if it is not a dense array; kResource.
  [[nodiscard]] StatusOr<Array> get(const std::string& name) const;
  /// The value of a var that holds some rows of a matrix. Errors: as get(), for other values.
  [[nodiscard]] StatusOr<Rows> get_rows(const std::string& name) const;

  /// Sets a var to a dense array; the var is created if there is none. Programs check declared
  /// dtypes and dims when they run. Errors: kInvalidArgument if the number of bytes does not fit
  /// dtype and dims; kResource. The var is then unchanged.
  Status set(const std::string& name, const Array& value);
  /// Sets a var to some rows of a matrix. Errors: as set(); kInvalidArgument if the first dim of
  /// the values is not the number of rows, or a row is not in [0, height).
  Status set_rows(const std::string& name, const Rows& value);
  /// Drops the value of a var; has() is then false. Does nothing if there is no such var.
  void clear(const std::string& name);

 private:
  friend struct Internals;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::api
