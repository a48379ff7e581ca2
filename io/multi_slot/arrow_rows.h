#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "io/multi_slot/arrow_abi.h"
#include "io/multi_slot/arrow_column.h"
#include "io/multi_slot/cells.h"
#include "io/multi_slot/line.h"
#include "io/multi_slot/slots.h"

namespace millrace::io {

/// Starts a pass over examples in Arrow form. The reader moves the stream out of the struct, whose
/// `release` is then null. Called once for each pass, in the thread that reads.
using ArrowOpener = std::function<StatusOr<std::shared_ptr<ArrowArrayStream>>()>;

/// Reads the rows of an Arrow stream as instances, one array of the stream at a time. The values of
/// a slot are those of the columns that CellRule::names lists, in order; all values of a list
/// belong to its row. Values are converted as cells of delimited text with the same value would be.
/// Not thread-safe.
class ArrowRows {
 public:
  /// \param counts  of all streams, for slots with a min_count; may be null if there are none
  /// All must outlive this.
  ArrowRows(std::span<const Slot> slots, const ValueCounts* counts);
  ArrowRows(const ArrowRows&) = delete;
  ArrowRows& operator=(const ArrowRows&) = delete;
  ~ArrowRows();

  /// Opens a stream and reads its schema.
  /// Errors: those of `open`; kInvalidData for a stream that breaks the interface, for a column
  /// that it lacks or has twice; kUnimplemented for the type of a column that a slot uses; kIo for
  /// an error of the stream, with its message.
  Status open(const ArrowOpener& open);
  /// Goes to the next row; false at the end. Errors: kIo of the stream, kInvalidData for an array
  /// that does not fit to the schema.
  StatusOr<bool> next();
  /// Number of the row, from 0.
  [[nodiscard]] int64_t number() const { return number_; }
  /// Appends the row. Errors: kInvalidData with slot and column for a value that is missing without
  /// a default, has the wrong type or is not finite, and for another number of values than a dense
  /// slot has. After an error `to` holds part of the instance.
  Status append(SlotRows& to);
  /// Counts the values of the row. Errors: those of append() for slots with a min_count.
  Status count(ValueCounts& to);

 private:
  /// A slot, and where its columns are in columns_.
  struct Source {
    size_t slot = 0;
    std::vector<size_t> columns;
  };

  Status find_columns(const ArrowSchema& schema);
  StatusOr<size_t> find_column(const ArrowSchema& schema, const Slot& slot,
                               const std::string& name);
  Status next_array();
  Status bind_array();
  void release_array();
  [[nodiscard]] Status stream_error(const char* call, int error);
  Status append_floats(const Source& source, SlotColumn& column);
  Status append_ids(const Source& source, SlotColumn& column);

  std::span<const Slot> slots_;
  const ValueCounts* counts_;
  std::vector<Source> sources_;
  std::vector<ArrowColumn> columns_;
  std::vector<int64_t> children_;  ///< of the schema, by column
  int64_t schema_children_ = 0;
  ArrowArrayStream stream_{};
  ArrowArray array_{};
  int64_t row_ = 0;      ///< in array_
  int64_t number_ = -1;  ///< of the row in the stream
};

}  // namespace millrace::io
