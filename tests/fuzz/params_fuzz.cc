// Input: a line of kinds (L: LoD tensor, R: selected rows), then a combined file. It is refused
// with a position, or read into values that are written to the same bytes, except for the encoding
// of descriptors and of bools; the written bytes are read and written without any change.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/params.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

namespace {

using millrace::io::ByteSource;
using millrace::io::ParamSpec;
using millrace::io::ParamValues;

std::string written(const std::vector<ParamSpec>& specs, const ParamValues& values) {
  std::vector<millrace::io::NamedValue> named;
  named.reserve(specs.size());
  for (const ParamSpec& spec : specs) named.push_back({spec.name, &values.at(spec.name)});
  const auto bytes = millrace::io::combined_bytes(named);
  require(bytes.ok(), "what is read can be written");
  return *bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == std::string_view::npos || line > 16) return 0;
  std::vector<ParamSpec> specs(line);
  for (size_t i = 0; i < line; ++i) {
    specs[i].name = "v" + std::to_string(i);
    if (input[i] == 'R') specs[i].kind = millrace::VarKind::kSelectedRows;
  }
  const auto source = ByteSource::of_memory(input.substr(line + 1), "fuzz");
  const auto values = load_combined(source, specs);
  if (!values.ok()) {
    require(values.status().location().file == "fuzz", "an error names the file");
    return 0;
  }
  const std::string once = written(specs, *values);
  const auto again = load_combined(ByteSource::of_memory(once, "again"), specs);
  require(again.ok(), "what is written is read");
  require(written(specs, *again) == once, "what is written stays the same");
  return 0;
}
