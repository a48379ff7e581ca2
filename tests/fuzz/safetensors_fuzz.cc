// Any bytes as a safetensors file are refused with a message, or have a header whose tensors cover
// the data exactly; writing that header again produces an equivalent one.

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/checkpoint/safetensors.h"
#include "tests/fuzz/memory_readable.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::io::SafetensorsEntry;
  using millrace::testing::MemoryReadable;
  using millrace::testing::require;
  const auto header = millrace::io::read_safetensors_header(MemoryReadable(data, size));
  if (!header.ok()) {
    require(!header.status().message().empty(), "an error has a message");
    return 0;
  }
  uint64_t at = header->data_begin;
  for (const SafetensorsEntry& entry : header->entries) {
    require(entry.begin == at && entry.end >= at, "tensors follow each other");
    at = entry.end;
  }
  require(at == size, "tensors end where the file does");
  std::vector<SafetensorsEntry> entries = header->entries;
  const auto written = millrace::io::lay_out_safetensors(entries, header->metadata);
  if (!written.ok()) return 0;  // names that JSON can represent only with escapes
  std::string bytes = *written;
  bytes.resize(entries.empty() ? bytes.size() : entries.back().end);
  const auto again =
      millrace::io::read_safetensors_header(MemoryReadable(bytes.data(), bytes.size()));
  require(again.ok(), "what was written is read");
  require(again->entries.size() == entries.size(), "nothing is lost");
  require(again->metadata == header->metadata, "metadata stay");
  return 0;
}
