// Any text as slices.json: parsing ends with a status, and a parsed value is printed and parsed
// again.

#include <cstdlib>
#include <string>

#include "transpiler/distribute/slices_json.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace millrace::transpiler;  // NOLINT(google-build-using-namespace): one short function
  const std::string text(data, data + size);
  const auto file = parse_slices_json(text);
  if (!file.ok()) return 0;
  const auto again = parse_slices_json(slices_json(file->properties, file->overview));
  if (!again.ok() || again->overview.vars().size() != file->overview.vars().size()) std::abort();
  return 0;
}
