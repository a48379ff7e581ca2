// Any bytes as a pickle are refused with a message, or read into values whose references exist and
// whose bytes are in the file.

#include <cstddef>
#include <cstdint>

#include "io/original/pickle.h"
#include "tests/fuzz/memory_readable.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::io::Pickle;
  using millrace::testing::require;
  const auto pickle = millrace::io::read_pickle(millrace::testing::MemoryReadable(data, size));
  if (!pickle.ok()) {
    require(!pickle.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto count = static_cast<millrace::io::PickleRef>(pickle->values.size());
  require(pickle->root >= 0 && pickle->root < count, "the root exists");
  for (millrace::io::PickleRef i = 0; i < count; ++i) {
    if (const auto* const bytes = pickle->get<millrace::io::PickleBytes>(i))
      require(bytes->begin <= size && bytes->size <= size - bytes->begin, "bytes lie in the file");
    if (const auto* const list = pickle->get<millrace::io::PickleList>(i))
      for (const auto item : list->items) require(item >= 0 && item < count, "items exist");
    if (const auto* const object = pickle->get<millrace::io::PickleObject>(i))
      require(object->arguments < count && object->state < count, "parts of objects exist");
    static_cast<void>(pickle->find(i, "state"));
  }
  return 0;
}
