// Any bytes are refused with a status, or read into a program that exports to the same bytes and
// whose canonical form reads back to itself.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "framework/export.h"
#include "framework/import.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "violated: " << what << std::endl;
  std::abort();
}

}  // namespace

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
  return 0;
}
