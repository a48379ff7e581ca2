// Any text is refused with a position, or read into a program whose printed form reads back to the
// same text and the same bytes.

#include <cstddef>
#include <cstdint>
#include <string>

#include "framework/export.h"
#include "framework/text_form/parse.h"
#include "framework/text_form/print.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto program = millrace::parse_program(bytes, "fuzz");
  if (!program.ok()) {
    const bool has_place = program.status().message().find("line ") == 0 ||
                           program.status().code() == millrace::StatusCode::kUnimplemented;
    require(has_place, "an error names line and column");
    return 0;
  }
  const std::string text = millrace::print_program(**program);
  const auto again = millrace::parse_program(text, "printed");
  require(again.ok(), "the printed form reads back");
  require(millrace::print_program(**again) == text, "the printed form is stable");
  require(export_program(**again) == export_program(**program), "both have the same bytes");
  return 0;
}
