#include "jobs/data/csv.h"

#include <charconv>

#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::jobs {
namespace {

constexpr size_t kShownBytes = 24;  // of a cell that is not a number

// Whether the cell of a first line may be the name of a column. What begins like a number is one
// with a mistake, or one in another form ("+5", "5;6"), which must not be skipped.
bool may_be_name(llvm::StringRef cell) {
  const llvm::StringRef text = cell.ltrim('"').ltrim("+-.");
  return text.empty() || !llvm::isDigit(text.front());
}

// The cells of a line.
struct Row {
  std::vector<double> values;
  size_t bad = 0;              ///< number of cells that are not numbers
  size_t first_bad = 0;        ///< column of the first one
  llvm::StringRef first_text;  ///< its text
  bool names = true;           ///< all cells may be names of columns
};

void parse_row(llvm::StringRef line, Row& row) {
  row.values.clear();
  row.bad = 0;
  row.names = true;
  while (true) {
    const auto [cell, rest] = line.split(',');
    const llvm::StringRef text = cell.trim();
    double value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error != std::errc() || end != text.end()) {
      if (row.bad++ == 0) {
        row.first_bad = row.values.size();
        row.first_text = text;
      }
      row.names = row.names && may_be_name(text);
    }
    row.values.push_back(value);
    if (cell.size() == line.size()) return;
    line = rest;
  }
}

}  // namespace

StatusOr<CsvTable> parse_csv(std::string_view all) {
  llvm::StringRef text(all);
  text.consume_front("\xEF\xBB\xBF");  // byte order mark
  CsvTable table;
  Row row;
  for (size_t number = 1; !text.empty(); ++number) {
    const auto [line, rest] = text.split('\n');
    text = rest;
    if (line.trim().empty()) continue;
    parse_row(line, row);
    const size_t columns = row.values.size();
    // A first line with some numbers is an example with a mistake, which must not be skipped.
    if (number == 1 && row.bad == columns && row.names) continue;
    if (row.bad > 0) {
      return InvalidData("line {}, column {}: expected a number, found '{}'", number, row.first_bad,
                         printable(row.first_text.take_front(kShownBytes)));
    }
    if (table.columns == 0) table.columns = columns;
    if (columns != table.columns)
      return InvalidData("line {}: expected {} columns, found {}", number, table.columns, columns);
    table.cells.insert(table.cells.end(), row.values.begin(), row.values.end());
  }
  if (table.columns == 0) return InvalidData("expected lines of numbers, found none");
  return table;
}

}  // namespace millrace::jobs
