// Messages between ranks that save together: any text is refused with a message, or is claims (or
// written parts) that produce the same text again; claims are used to make a plan, which refuses
// them or covers the tensors.

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/checkpoint/plan.h"
#include "io/checkpoint/write_parts.h"
#include "io/json.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::io;
  using millrace::testing::require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto claims = parse_claims(text);
  if (claims.ok()) {
    const std::string written = claims_text(*claims);
    const auto again = parse_claims(written);
    require(again.ok() && claims_text(*again) == written, "claims are read back");
    const auto plan = make_save_plan({*claims, *claims}, 0);
    require(plan.ok() || !plan.status().message().empty(), "a refusal has a message");
  } else {
    require(!claims.status().message().empty(), "an error has a message");
  }
  const auto json = parse_json(text, {.max_depth = 12});
  if (!json.ok()) return 0;
  const auto parts = parse_parts(*json);
  if (!parts.ok()) {
    require(!parts.status().message().empty(), "an error has a message");
    return 0;
  }
  const std::string written = parts_text(*parts);
  const auto value = parse_json(written, {.max_depth = 12});
  require(value.ok(), "parts are written as JSON");
  const auto again = parse_parts(*value);
  require(again.ok() && parts_text(*again) == written, "parts are read back");
  return 0;
}
