// Any text as a manifest is refused with a message, or is a manifest that is written and read back
// to the same text. The checksum at the end would refuse nearly every input, so it is corrected
// first.

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/checkpoint/manifest.h"
#include "io/checkpoint/manifest_form.h"
#include "io/params_manifest.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::io::checksum_of;
  using millrace::io::checksum_tail;
  using millrace::testing::require;
  std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto params = millrace::io::parse_params_manifest(text); params.ok()) {
    const std::string written = millrace::io::params_manifest_text(*params);
    const auto again = millrace::io::parse_params_manifest(written);
    require(again.ok() && millrace::io::params_manifest_text(*again) == written,
            "a manifest of parameter files is read back");
  } else {
    require(!params.status().message().empty(), "an error has a message");
  }
  const size_t tail = checksum_tail({}).size();
  if (text.size() > tail) text.resize(text.size() - tail);
  text += checksum_tail(checksum_of(std::string_view(text)));
  const auto manifest = millrace::io::parse_manifest(text, "manifest.json");
  if (!manifest.ok()) {
    require(!manifest.status().message().empty(), "an error has a message");
    return 0;
  }
  const std::string written = millrace::io::manifest_text(*manifest);
  const auto again = millrace::io::parse_manifest(written, "manifest.json");
  require(again.ok(), "what was written is read");
  require(millrace::io::manifest_text(*again) == written, "and written the same");
  return 0;
}
