// Any text as rows of a table is refused with a message that names its line, or is parsed to rows
// that are written and read back the same. Also parses it as initializers and entries.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ps/table/entry_policy.h"
#include "ps/table/initializer.h"
#include "ps/table/table_files.h"
#include "tests/fuzz/require.h"

namespace {

using namespace millrace::ps;
using millrace::testing::require;

std::unique_ptr<SparseTable> make_table() {
  SparseTableOptions options;
  options.partitions = 1;
  options.accessor.kind = AccessorOptions::Kind::kSparse;
  options.accessor.embedx_dim = 2;
  options.accessor.fea_dim = 5;
  options.accessor.embedx_threshold = 1;
  return std::move(*SparseTable::create(options));
}

// NaNs have several bit patterns, but one text.
std::string text_of(SparseTable& table) {
  std::string text;
  const millrace::Status status = table.visit([&](uint64_t key, float* row) {
    text += std::to_string(key);
    const int used = table.accessor().used_floats(row);
    for (int i = 0; i < used; ++i) {
      char number[32];
      std::snprintf(number, sizeof(number), " %.9g", static_cast<double>(row[i]));
      text += number;
    }
    text += '\n';
    return millrace::Status();
  });
  require(status.ok(), "rows can be seen");
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)parse_entry(text).ok();
  if (const auto made = parse_initializer(text); made.ok()) {
    std::vector<float> values(4);
    KeyedRandom random(made->seed, 1);
    made->fill(values, random);
  }
  const auto table = make_table();
  const auto rows = parse_rows(*table, text, "rows");
  if (!rows.ok()) {
    require(rows.status().message().find("line ") == 0, "an error names its line");
    return 0;
  }
  const std::string written = text_of(*table);
  const auto again = make_table();
  require(parse_rows(*again, written, "rows").ok(), "what was written is read");
  require(text_of(*again) == written, "and written the same");
  return 0;
}
