#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"
#include "io/multi_slot/arrow_abi.h"

namespace millrace::io {

/// One value of an Arrow column. std::monostate: it is missing (null). Whole numbers are int64_t,
/// those of uint64 columns uint64_t; booleans are 0 or 1, times and dates the number that is
/// stored. Text is valid as long as its array.
using ArrowCell = std::variant<std::monostate, int64_t, uint64_t, double, std::string_view>;

/// How the values of an Arrow column are stored.
enum class ArrowStorage : uint8_t {
  kNull,  ///< all are missing
  kBool,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat32,
  kFloat64,
  kText32,    ///< offsets of 32 bits
  kText64,    ///< offsets of 64 bits
  kTextView,  ///< views of 16 bytes, short texts inside of them
  kList32,
  kList64,
  kListFixed,  ///< the same number of values in every row
};

/// Reads a column of Arrow arrays, which other code has filled. What can be checked without knowing
/// the sizes of buffers is checked: lengths, offsets, pointers, indices, ends of texts and lists.
/// Not thread-safe.
class ArrowColumn {
 public:
  /// The column of a schema: numbers, booleans, text, times, dictionaries of them, and lists of
  /// these. Errors: kInvalidData for a schema that breaks the interface; kUnimplemented for another
  /// type, naming it.
  static StatusOr<ArrowColumn> create(const ArrowSchema& schema);

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Reads `rows` values of an array from now on. It must outlive the calls of for_each().
  /// Errors: kInvalidData for an array that does not fit to the schema or is shorter.
  Status bind(const ArrowArray& array, int64_t rows);
  /// Calls `use` for each value of a row: one for a column of scalars, all values of a list. A list
  /// that is null or has no values is one missing value.
  /// Errors: kInvalidData for offsets and indices outside of the array; those of `use`.
  Status for_each(int64_t row, llvm::function_ref<Status(const ArrowCell&)> use) const;

 private:
  enum class Level : uint8_t { kTop, kItem, kDictionary };

  Status describe(const ArrowSchema& schema, Level level);
  Status describe_format(std::string_view format);
  Status check_buffers() const;
  [[nodiscard]] bool is_list() const { return storage_ >= ArrowStorage::kList32; }
  [[nodiscard]] bool is_null(int64_t at) const;
  template <typename T>
  [[nodiscard]] T stored(int buffer, int64_t at) const;
  StatusOr<ArrowCell> cell(int64_t row) const;
  StatusOr<ArrowCell> plain_cell(int64_t at) const;
  StatusOr<ArrowCell> text_between(int64_t begin, int64_t end, int64_t last) const;
  StatusOr<ArrowCell> text_view(int64_t at) const;
  Status list_range(int64_t at, int64_t& begin, int64_t& end) const;

  std::string name_;
  std::string format_;
  ArrowStorage storage_ = ArrowStorage::kNull;
  int64_t list_size_ = 0;                    ///< kListFixed
  std::unique_ptr<ArrowColumn> items_;       ///< of lists
  std::unique_ptr<ArrowColumn> dictionary_;  ///< its values, if this has indices
  const ArrowArray* array_ = nullptr;
};

}  // namespace millrace::io
