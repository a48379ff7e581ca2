// Any line is an instance of the slots, or refused with a message; any JSON is a list of slots or
// refused.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/multi_slot/line.h"
#include "io/multi_slot/slots.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto program = Program::create();
  const auto file = io::parse_slots(text, *program);
  if (file.ok()) {
    require(!file->slots.empty(), "there are slots");
    for (const io::Slot& slot : file->slots) require(slot.width() >= 1, "a width above 0");
  } else {
    require(!file.status().message().empty(), "an error has a message");
  }
  const io::Slot slots[] = {{.name = "click", .is_float = true, .is_dense = true, .dims = {1}},
                            {.name = "ids"},
                            {.name = "unused", .is_used = false},
                            {.name = "dense", .is_float = true, .is_dense = true, .dims = {2}}};
  io::SlotRows rows;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const int64_t before = rows.rows;
    const Status status = io::parse_multi_slot_line(line, slots, rows);
    if (!status.ok()) {
      require(!status.message().empty() && rows.rows == before, "an error changes no count");
      return 0;
    }
    require(rows.rows == before + 1, "one instance more");
    require(rows.columns[0].floats.size() == static_cast<size_t>(rows.rows), "one click");
    require(rows.columns[1].ids.size() <= size, "no more ids than bytes");
    require(rows.columns[3].ends.back() == 2 * rows.rows, "two numbers an instance");
  }
  return 0;
}
