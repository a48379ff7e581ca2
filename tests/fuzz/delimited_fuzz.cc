// Any line of delimited text is an instance of the slots, or refused with a message; any JSON is a
// description of such lines or refused.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/multi_slot/cells.h"
#include "io/multi_slot/slots.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto program = Program::create();
  const auto file = io::parse_slots(text, *program);
  require(file.ok() || !file.status().message().empty(), "an error has a message");
  const io::TextFormat format{.delimited = true, .columns = 5};
  const io::Slot slots[] = {
      {.name = "click", .is_dense = true},
      {.name = "dense",
       .is_float = true,
       .is_dense = true,
       .dims = {2},
       .cells = {.first = 1, .count = 2, .missing = 0.0}},
      {.name = "hex",
       .cells = {.first = 3, .missing_id = 7, .hash = io::CellHash::kHexadecimal, .buckets = 10}},
      {.name = "text",
       .cells = {.first = 4, .missing_id = 0, .hash = io::CellHash::kMurmur3, .min_count = 2}}};
  io::ValueCounts counts(std::size(slots));
  io::DelimitedLines lines(format, slots, &counts);
  io::SlotRows rows;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const int64_t before = rows.rows;
    static_cast<void>(lines.count(line, counts));
    const Status status = lines.append(line, rows);
    if (!status.ok()) {
      require(!status.message().empty() && rows.rows == before, "an error changes no count");
      return 0;
    }
    require(rows.rows == before + 1, "one instance more");
    require(rows.columns[1].floats.size() == static_cast<size_t>(2 * rows.rows), "two numbers");
    require(rows.columns[2].ids.back() >= 0 && rows.columns[2].ids.back() < 10, "a bucket");
  }
  return 0;
}
