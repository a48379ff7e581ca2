// Records of checkpoints: any text is refused with a message, or is parsed to values that produce
// the same text.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jobs/run/checkpoints.h"
#include "ps/server/calls_record.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::testing::require;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto calls = millrace::ps::parse_calls(text); calls.ok()) {
    const std::string written = millrace::ps::calls_text(*calls);
    const auto again = millrace::ps::parse_calls(written);
    require(again.ok() && millrace::ps::calls_text(*again) == written, "calls are read back");
  } else {
    require(!calls.status().message().empty(), "an error has a message");
  }
  if (const auto random = millrace::jobs::parse_random_record(text); random.ok()) {
    const std::string written = millrace::jobs::random_record(*random);
    const auto again = millrace::jobs::parse_random_record(written);
    require(again.ok() && *again == *random, "positions are read back");
  } else {
    require(!random.status().message().empty(), "an error has a message");
  }
  return 0;
}
