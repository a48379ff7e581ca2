// Any bytes are refused with a status, or read into a program that exports to the same bytes, whose
// canonical form reads back to itself, and whose text form reads back to the same elements.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "framework/export.h"
#include "framework/import.h"
#include "framework/text_form/parse.h"
#include "framework/text_form/print.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::make_shared<const std::string>(reinterpret_cast<const char*>(data), size);
  const auto program = millrace::import_program(bytes, "fuzz");
  if (!program.ok()) {
    require(!program.status().message().empty(), "an error has a message");
    return 0;
  }
  require(export_program(**program) == *bytes, "an unedited program exports to its bytes");

  const millrace::ExportOptions canonical{.canonical = true};
  const auto form = std::make_shared<const std::string>(export_program(**program, canonical));
  const auto again = millrace::import_program(form, "canonical");
  require(again.ok(), "the canonical form reads back");
  require(export_program(**again, canonical) == *form, "the canonical form is stable");

  const std::string text = millrace::print_program(**program);
  const auto parsed = millrace::parse_program(text, "text");
  require(parsed.ok(), "the text form reads back");
  require(export_program(**parsed, canonical) == *form, "the text form keeps every fact");
  require(millrace::print_program(**parsed) == text, "the text form is stable");
  (*program)->touch();  // forces export from the elements instead of the original bytes of the file
  require(export_program(**parsed) == export_program(**program), "elements keep their bytes");
  return 0;
}
