#include "jobs/data/csv.h"

#include <charconv>

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"

namespace millrace::jobs {
namespace {

// The cells of a line; `bad` receives the columns that are not numbers.
void parse_row(llvm::StringRef line, std::vector<double>& row, std::vector<size_t>& bad) {
  row.clear();
  bad.clear();
  while (true) {
    const auto [cell, rest] = line.split(',');
    const llvm::StringRef text = cell.trim();
    double value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error != std::errc() || end != text.end()) bad.push_back(row.size());
    row.push_back(value);
    if (cell.size() == line.size()) return;
    line = rest;
  }
}

}  // namespace

StatusOr<CsvTable> parse_csv(std::string_view all) {
  llvm::StringRef text(all);
  CsvTable table;
  std::vector<double> row;
  std::vector<size_t> bad;
  for (size_t number = 1; !text.empty(); ++number) {
    const auto [line, rest] = text.split('\n');
    text = rest;
    if (line.trim().empty()) continue;
    parse_row(line, row, bad);
    // A first line with some numbers is an example with a mistake, which must not be skipped.
    if (number == 1 && bad.size() == row.size()) continue;
    if (!bad.empty())
      return InvalidData("line {}, column {}: expected a number", number, bad.front());
    if (table.columns == 0) table.columns = row.size();
    if (row.size() != table.columns) {
      return InvalidData("line {}: expected {} columns, found {}", number, table.columns,
                         row.size());
    }
    table.cells.insert(table.cells.end(), row.begin(), row.end());
  }
  if (table.columns == 0) return InvalidData("expected lines of numbers, found none");
  return table;
}

}  // namespace millrace::jobs
