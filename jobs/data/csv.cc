#include "jobs/data/csv.h"

#include <charconv>

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"

namespace millrace::jobs {
namespace {

bool parse_row(llvm::StringRef line, std::vector<double>& row, size_t& bad) {
  row.clear();
  while (true) {
    const auto [cell, rest] = line.split(',');
    const llvm::StringRef text = cell.trim();
    double value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error != std::errc() || end != text.end()) {
      bad = row.size();
      return false;
    }
    row.push_back(value);
    if (cell.size() == line.size()) return true;
    line = rest;
  }
}

}  // namespace

StatusOr<CsvTable> parse_csv(std::string_view all) {
  llvm::StringRef text(all);
  CsvTable table;
  std::vector<double> row;
  for (size_t number = 1; !text.empty(); ++number) {
    const auto [line, rest] = text.split('\n');
    text = rest;
    if (line.trim().empty()) continue;
    size_t bad = 0;
    if (!parse_row(line, row, bad)) {
      if (number == 1) continue;  // header
      return InvalidData("line {}, column {}: expected a number", number, bad);
    }
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
