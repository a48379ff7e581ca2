// The verifier terminates for any program file; a program without errors exports and reads back to
// one without errors.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "framework/export.h"
#include "framework/import.h"
#include "ops/verify.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto registry = millrace::ops::standard_registry();
  const auto bytes = std::make_shared<const std::string>(reinterpret_cast<const char*>(data), size);
  const auto program = millrace::import_program(bytes, "fuzz");
  if (!program.ok()) return 0;
  millrace::ops::VerifyOptions options;
  options.lint = true;
  const auto findings = verify_program(*registry, **program, options);
  const std::string text = millrace::to_text(findings, findings.size());
  const millrace::Status status = millrace::to_status(findings);
  const auto form = std::make_shared<const std::string>(
      export_program(**program, millrace::ExportOptions{.canonical = true}));
  const auto again = millrace::import_program(form, "canonical");
  require(again.ok(), "the canonical form reads back");
  const auto same = verify_program(*registry, **again, options);
  require(millrace::to_text(same, same.size()) == text, "the canonical form has the same findings");
  require(status.ok() || !status.message().empty(), "an error has a message");
  return 0;
}
