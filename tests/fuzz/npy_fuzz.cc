// Any bytes are refused with a message, or read into a tensor no larger than they are, which is
// written and read again to the same elements.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "io/npy.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tensor = millrace::io::parse_npy(bytes);
  if (!tensor.ok()) {
    require(!tensor.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto length = static_cast<size_t>(tensor->bytes());
  require(length <= size, "a tensor is no larger than its file");
  const std::string_view elements(reinterpret_cast<const char*>(tensor->raw()), length);
  const std::string written = millrace::io::npy_header(*tensor) + std::string(elements);
  const auto again = millrace::io::parse_npy(written);
  require(again.ok(), "what is written is read");
  require(again->dtype() == tensor->dtype() && again->dims() == tensor->dims(), "type and dims");
  require(std::memcmp(again->raw(), tensor->raw(), length) == 0, "elements");
  return 0;
}
