// MultiSlot text: slots files, lines, files, and concurrent readers.

#include <algorithm>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <zlib.h>

#include "io/multi_slot/line.h"
#include "io/multi_slot/line_stream.h"
#include "io/multi_slot/reader.h"
#include "io/multi_slot/slots.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Slot> click_and_ids() {
  return {{.name = "click", .is_float = true, .is_dense = true, .dims = {1}},
          {.name = "ids"},
          {.name = "other", .is_used = false}};
}

std::string error_of_multi_slot(const std::string& line) {
  SlotRows rows;
  const Status status = parse_multi_slot_line(line, click_and_ids(), rows);
  EXPECT_EQ(status.code(), StatusCode::kInvalidData) << line;
  return status.message();
}

TEST(MultiSlotLine, AppendsInstances) {
  SlotRows rows;
  const std::vector<Slot> slots = click_and_ids();
  ASSERT_TRUE(parse_multi_slot_line("1 0.5 2 11 7 1 9", slots, rows).ok());
  ASSERT_TRUE(
      parse_multi_slot_line("1\t-1e-3  1 18446744073709551615 2 1 1 \t\r", slots, rows).ok());
  EXPECT_EQ(rows.rows, 2);
  EXPECT_THAT(rows.columns[0].floats, ElementsAre(0.5F, -1e-3F));
  EXPECT_THAT(rows.columns[1].ids, ElementsAre(11, 7, -1));
  EXPECT_THAT(rows.columns[1].ends, ElementsAre(2, 3));
  EXPECT_TRUE(rows.columns[2].ids.empty());
  EXPECT_TRUE(rows.columns[2].ends.empty());
}

TEST(MultiSlotLine, NamesWhatIsWrong) {
  EXPECT_THAT(error_of_multi_slot(""),
              HasSubstr("slot 'click': expected a count from 1 to 2147483647, found "
                        "the end of the line"));
  EXPECT_THAT(error_of_multi_slot("1 0.5 0 1 9"), HasSubstr("slot 'ids': expected a count"));
  EXPECT_THAT(error_of_multi_slot("1 0.5 -1 1 9"), HasSubstr("found '-1'"));
  EXPECT_THAT(error_of_multi_slot("1 0.5 2147483648 1 9"), HasSubstr("found '2147483648'"));
  EXPECT_THAT(error_of_multi_slot("2 0.5 0.5 1 1 1 9"),
              HasSubstr("expected 1 numbers per instance"));
  EXPECT_THAT(error_of_multi_slot("1 0.5 3 1 2"), HasSubstr("number 2 is the end of the line"));
  EXPECT_THAT(error_of_multi_slot("1 half 1 1 1 9"), HasSubstr("number 0 is 'half'"));
  EXPECT_THAT(error_of_multi_slot("1 1e99 1 1 1 9"), HasSubstr("number 0 is '1e99'"));
  EXPECT_THAT(error_of_multi_slot("1 1 1 18446744073709551616 1 9"),
              HasSubstr("'18446744073709551616'"));
  EXPECT_THAT(error_of_multi_slot("1 1 1 7x 1 9"), HasSubstr("'7x'"));
  EXPECT_THAT(error_of_multi_slot("1 1 1 7 1 9 4"),
              HasSubstr("expected the end of the line, found '4'"));
}

TEST(MultiSlotLine, IdsReachBothEnds) {
  SlotRows rows;
  const std::vector<Slot> slots = {{.name = "ids"}};
  ASSERT_TRUE(parse_multi_slot_line(
                  "3 9223372036854775807 -9223372036854775808 00000000000000000000007", slots, rows)
                  .ok());
  EXPECT_THAT(rows.columns[0].ids, ElementsAre(std::numeric_limits<int64_t>::max(),
                                               std::numeric_limits<int64_t>::min(), 7));
  EXPECT_FALSE(parse_multi_slot_line("1 -9223372036854775809", slots, rows).ok());
}

TEST(MultiSlotSlots, ReadsTheOriginalsDescription) {
  const auto program = Program::create();
  const auto file =
      parse_slots(R"({"name": "MultiSlotDataFeed", "batch_size": 32, "multi_slot_desc":
      {"slots": [{"name": "a", "type": "uint64", "is_dense": false, "is_used": true},
                 {"name": "x", "type": "float", "is_dense": true, "is_used": false,
                  "shape": [-1, 2, 3]}]}})",
                  *program);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->batch_size, 32);
  ASSERT_EQ(file->slots.size(), 2U);
  EXPECT_FALSE(file->slots[0].is_float);
  EXPECT_TRUE(file->slots[1].is_dense);
  EXPECT_FALSE(file->slots[1].is_used);
  EXPECT_EQ(file->slots[1].width(), 6U);
}

TEST(MultiSlotSlots, RefusesWhatMakesNoSense) {
  const auto program = Program::create();
  for (
      const auto& [text, said] : std::vector<std::pair<const char*, const char*>>{
          {"{", "not valid JSON"},
          {"{}", "expected a list 'slots'"},
          {"[]", "expected a list of slots"},
          {"[3]", "slot 0: expected a name"},
          {R"(["a"])", "it needs a type"},
          {R"([{"name": "a", "type": "int8"}])", "expected type float or uint64, found 'int8'"},
          {R"([{"name": "a", "type": 3}])", "field 'type' has the wrong type"},
          {R"([{"name": "a", "type": "float", "is_dense": true, "shape": [2, -1]}])",
           "expected dims above 0"},
          {R"([{"name": "a", "type": "float", "is_dense": true, "shape": [4294967296, 4294967296]}])",
           "expected dims above 0"},
          {R"([{"name": "a", "type": "float"}, {"name": "a", "type": "float"}])", "twice"},
          {R"({"slots": [{"name": "a", "type": "float"}], "batch_size": 0})", "batch_size"}}) {
    const auto file = parse_slots(text, *program);
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_THAT(file.status().message(), HasSubstr(said)) << text;
  }
}

class MultiSlotFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // ids of all batches, one list per batch
  static StatusOr<std::vector<std::vector<int64_t>>> read_all(const MultiSlotSource& source) {
    MultiSlotReader reader(source);
    std::vector<std::vector<int64_t>> batches;
    SlotRows rows;
    while (true) {
      MILLRACE_RETURN_IF_ERROR(reader.next(rows));
      if (rows.rows == 0) return batches;
      EXPECT_EQ(rows.rows, static_cast<int64_t>(rows.columns[0].ids.size()));
      batches.push_back(rows.columns[0].ids);
    }
  }

  testing::TempFolder folder_;
};

TEST_F(MultiSlotFiles, BatchesGoOnAcrossFiles) {
  MultiSlotSource source;
  source.slots = {{.name = "ids"}};
  source.files = {write("a", "1 1\n1 2\n1 3\n"), write("b", ""), write("c", "1 4\n1 5")};
  source.batch_size = 2;
  const auto batches = read_all(source);
  ASSERT_TRUE(batches.ok()) << batches.status().to_string();
  EXPECT_THAT(*batches, ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(5)));
}

TEST_F(MultiSlotFiles, EveryLineComesOnceWhateverTheReaders) {
  MultiSlotSource source;
  source.slots = {{.name = "ids"}};
  std::vector<int64_t> all;
  for (int f = 0; f < 5; ++f) {
    std::string text;
    for (int i = 0; i < 100 * f; ++i) {
      all.push_back(f * 1000 + i);
      text += fmt::format("1 {}\n", all.back());
    }
    source.files.push_back(write(fmt::format("part-{}", f), text));
  }
  source.batch_size = 7;
  for (const int readers : {1, 2, 3, 9}) {
    source.readers = readers;
    const auto batches = read_all(source);
    const auto again = read_all(source);
    ASSERT_TRUE(batches.ok() && again.ok());
    EXPECT_EQ(*batches, *again) << readers;
    std::vector<int64_t> seen;
    for (const auto& batch : *batches) seen.insert(seen.end(), batch.begin(), batch.end());
    if (readers == 1) {
      EXPECT_EQ(seen, all);
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, all) << readers;
  }
}

TEST_F(MultiSlotFiles, ErrorsSayFileAndLineBehindTheBatchesBefore) {
  MultiSlotSource source;
  source.slots = {{.name = "ids"}};
  source.files = {write("bad", "1 1\n1 2\n1 x\n1 4\n")};
  source.batch_size = 2;
  MultiSlotReader reader(source);
  SlotRows rows;
  ASSERT_TRUE(reader.next(rows).ok());
  EXPECT_EQ(rows.rows, 2);
  for (int i = 0; i < 2; ++i) {
    const Status status = reader.next(rows);
    EXPECT_THAT(
        status.to_string(),
        HasSubstr(source.files[0] + ": line 3: slot 'ids': expected 1 numbers, number 0 is 'x'"));
  }
  source.files = {(folder_ / "nothing")};
  EXPECT_EQ(read_all(source).status().code(), StatusCode::kNotFound);
  source.files = {(folder_ / "")};
  EXPECT_EQ(read_all(source).status().code(), StatusCode::kInvalidData);
}

TEST_F(MultiSlotFiles, ReadersEndWhenNobodyTakesTheirBatches) {
  MultiSlotSource source;
  source.slots = {{.name = "ids"}};
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "1 1\n";
  source.files = {write("a", text), write("b", text)};
  source.readers = 2;
  MultiSlotReader reader(source);
  SlotRows rows;
  EXPECT_TRUE(reader.next(rows).ok());
}

std::string gzip(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string copy = text;
  state.next_in = reinterpret_cast<Bytef*>(copy.data());
  state.avail_in = static_cast<uInt>(copy.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

TEST_F(MultiSlotFiles, GzipIsReadMembersOneAfterTheOther) {
  MultiSlotSource source;
  source.slots = {{.name = "ids"}};
  source.batch_size = 10;
  const std::string bytes = gzip("1 1\n1 2\n") + gzip("1 3\n");
  source.files = {write("a.gz", bytes)};
  const auto batches = read_all(source);
  ASSERT_TRUE(batches.ok()) << batches.status().to_string();
  EXPECT_THAT(*batches, ElementsAre(ElementsAre(1, 2, 3)));
  source.files = {write("cut.gz", bytes.substr(0, bytes.size() - 12))};
  EXPECT_THAT(read_all(source).status().to_string(), HasSubstr("cut.gz"));
  std::string damaged = bytes;
  damaged[12] = static_cast<char>(damaged[12] ^ 0x55);
  source.files = {write("damaged.gz", damaged)};
  EXPECT_EQ(read_all(source).status().code(), StatusCode::kInvalidData);
}

// A line that crosses the end of a chunk, and one that is longer than a chunk.
TEST_F(MultiSlotFiles, LinesAreWholeWhateverThePieces) {
  const std::string text = "short\n\n" + std::string(50, 'x') + "\nlast";
  for (size_t piece = 1; piece < 70; piece += 3) {
    auto bytes = open_input_bytes(write("lines", text));
    ASSERT_TRUE(bytes.ok());
    LineStream lines(*std::move(bytes), piece);
    std::vector<std::string> found;
    std::string_view line;
    while (*lines.next(line)) found.emplace_back(line);
    EXPECT_THAT(found, ElementsAre("short", "", std::string(50, 'x'), "last")) << piece;
    EXPECT_EQ(lines.number(), 4);
  }
}

}  // namespace
}  // namespace millrace::io
