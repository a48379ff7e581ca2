// Any text as a table of numbers is refused with a message that names its line, or every line has
// the same number of cells.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jobs/data/csv.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::testing::require;
  const auto table =
      millrace::jobs::parse_csv(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!table.ok()) {
    require(table.status().message().find("line") != std::string::npos, "an error names its line");
    return 0;
  }
  require(table->columns > 0 && !table->cells.empty(), "a table has numbers");
  require(table->cells.size() % table->columns == 0, "lines are equally long");
  require(table->cells.size() <= size, "a cell has a character");
  return 0;
}
