// Any text is refused with a message that names a column, or read into a pipeline whose printed
// form reads back to the same pipeline; creating its passes never crashes.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/require.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

using millrace::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::transpiler;  // NOLINT(google-build-using-namespace)
  const llvm::StringRef text(reinterpret_cast<const char*>(data), size);
  const auto pipeline = parse_pipeline(text);
  if (!pipeline.ok()) {
    require(!pipeline.status().message().empty(), "an error has a message");
    return 0;
  }
  const std::string printed = pipeline->to_string();
  const auto again = parse_pipeline(printed);
  require(again.ok() && *again == *pipeline, "the printed form reads back to the same pipeline");
  require(again->to_string() == printed, "the printed form is stable");

  PassRegistry passes;
  register_all(passes);
  const auto manager = PassManager::create(passes, *pipeline);
  require(manager.ok() || !manager.status().message().empty(), "an error has a message");
  return 0;
}
