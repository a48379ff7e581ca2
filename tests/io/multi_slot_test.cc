// MultiSlot text: slots files, lines, files, and concurrent readers.

#include <algorithm>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <zlib.h>

#include "io/multi_slot/cells.h"
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

// They were refused like numbers that are too large.
TEST(MultiSlotLine, NumbersBelowTheRangeOfFloatAreRounded) {
  SlotRows rows;
  const std::vector<Slot> slots = {{.name = "x", .is_float = true}};
  ASSERT_TRUE(parse_multi_slot_line("5 1e-40 1e-45 -1e-45 1e-50 0.0", slots, rows).ok());
  EXPECT_THAT(rows.columns[0].floats,
              ElementsAre(1e-40F, std::numeric_limits<float>::denorm_min(),
                          -std::numeric_limits<float>::denorm_min(), 0.0F, 0.0F));
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
          {R"({"slots": [{"name": "a", "type": "float"}], "batch_size": 0})", "batch_size"},
          {R"([{"name": "a", "type": "float", "is_dence": true}])", "unknown field 'is_dence'"},
          {R"({"slots": [{"name": "a", "type": "float"}], "rate": 1})", "unknown field 'rate'"},
          {R"({"slots": [{"name": "a", "type": "float"}], "pipe_command": 1})",
           "pipe_command: expected text, found 1"},
          {R"({"slots": [{"name": "a", "type": "float"}], "input_type": 1})", "input_type 1"},
          {R"({"slots": [{"name": "a", "type": "float"}], "header": true})",
           "header: only with"}}) {
    const auto file = parse_slots(text, *program);
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_THAT(file.status().message(), HasSubstr(said)) << text;
  }
}

StatusOr<SlotsFile> cells_of(const std::string& slots, const std::string& more = "") {
  const auto program = Program::create();
  return parse_slots(R"({"format": "delimited", )" + more + R"("slots": [)" + slots + "]}",
                     *program);
}

TEST(DelimitedSlots, RefusesWhatMakesNoSense) {
  for (
      const auto& [slot, said] : std::vector<std::pair<const char*, const char*>>{
          {R"({"name": "a", "type": "uint64"})", "slot 'a': expected a field 'columns'"},
          {R"({"name": "a", "type": "uint64", "columns": "2:1"})", "expected COLUMN or FIRST:LAST"},
          {R"({"name": "a", "type": "uint64", "columns": -1})", "expected COLUMN or FIRST:LAST"},
          {R"({"name": "a", "type": "uint64", "columns": 0, "default": 0.5})", "a whole number"},
          {R"({"name": "a", "type": "float", "columns": 0, "default": ""})", "a number, found"},
          {R"({"name": "a", "type": "float", "columns": 0, "hash": {}})", "only for ids"},
          {R"({"name": "a", "type": "uint64", "columns": 0, "hash": {"function": "md5"}})",
           "expected none, hexadecimal, xxh64"},
          {R"({"name": "a", "type": "uint64", "columns": 0, "hash": {"functio": "crc32"}})",
           "unknown field 'hash.functio'"},
          {R"({"name": "a", "type": "uint64", "columns": 0,
                "hash": {"function": "crc32", "buckets": 0}})",
           "'buckets': expected a whole number from 1"},
          {R"({"name": "a", "type": "uint64", "columns": 0,
                "hash": {"function": "crc32", "first": 1}})",
           "'hash.first' needs 'hash.buckets'"},
          {R"({"name": "a", "type": "uint64", "columns": 0, "hash": {"function": "none", "seed": 1}})",
           "neither prefix nor seed"},
          {R"({"name": "a", "type": "uint64", "columns": 0, "min_count": 2})", "both 'min_count'"},
          {R"({"name": "a", "type": "float", "is_dense": true, "shape": [3], "columns": "0:1"})",
           "expected 3 columns for its dims, found 2"},
          {R"({"name": "a", "type": "float", "columns": 0, "width": 1})",
           "unknown field 'width'"}}) {
    const auto file = cells_of(slot);
    ASSERT_FALSE(file.ok()) << slot;
    EXPECT_THAT(file.status().message(), HasSubstr(said)) << slot;
  }
  const std::string slot = R"({"name": "a", "type": "float", "columns": 3})";
  EXPECT_THAT(cells_of(slot, R"("columns": 3, )").status().message(),
              HasSubstr("column 3 does not exist, a line has 3 columns"));
  EXPECT_THAT(cells_of(slot, R"("separator": "ab", )").status().message(), HasSubstr("one byte"));
  EXPECT_THAT(cells_of(slot, R"("header": 1, )").status().message(), HasSubstr("true or false"));
}

class DelimitedLine : public ::testing::Test {
 protected:
  DelimitedLine() {
    auto file = cells_of(R"({"name": "click", "type": "uint64", "is_dense": true, "columns": 0},
        {"name": "dense", "type": "float", "is_dense": true, "columns": "1:2", "default": -1},
        {"name": "C1", "type": "uint64", "columns": 3, "default": 7,
         "hash": {"function": "hexadecimal", "buckets": 1000, "first": 10}})",
                         R"("columns": 5, )");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    file_ = *std::move(file);
  }
  std::string error_of(const std::string& line) {
    DelimitedLines lines(file_.format, file_.slots, nullptr);
    SlotRows rows;
    const Status status = lines.append(line, rows);
    EXPECT_EQ(status.code(), StatusCode::kInvalidData) << line;
    EXPECT_EQ(rows.rows, 0) << line;
    return status.message();
  }
  SlotsFile file_;
};

TEST_F(DelimitedLine, AppendsInstances) {
  DelimitedLines lines(file_.format, file_.slots, nullptr);
  SlotRows rows;
  ASSERT_TRUE(lines.append("1\t0.5\t\tff\tignored\r", rows).ok());
  ASSERT_TRUE(lines.append("0\t+2\t-3e1\t\t", rows).ok());
  EXPECT_EQ(rows.rows, 2);
  EXPECT_THAT(rows.columns[0].ids, ElementsAre(1, 0));
  EXPECT_THAT(rows.columns[1].floats, ElementsAre(0.5F, -1, 2, -30));
  EXPECT_THAT(rows.columns[1].ends, ElementsAre(2, 4));
  EXPECT_THAT(rows.columns[2].ids, ElementsAre(265, 7));
}

TEST_F(DelimitedLine, NamesWhatIsWrong) {
  EXPECT_THAT(error_of(""), HasSubstr("expected 5 columns, found 1"));
  EXPECT_THAT(error_of("1\t1\t1\tf\tx\ty"), HasSubstr("expected 5 columns, found 6"));
  EXPECT_THAT(error_of("\t1\t1\tf\tx"),
              HasSubstr("slot 'click', column 0: the cell is empty and the slot has no default"));
  EXPECT_THAT(error_of("1.5\t1\t1\tf\tx"),
              HasSubstr("slot 'click', column 0: expected a whole number, found '1.5'"));
  EXPECT_THAT(error_of("1\t1\tnan\tf\tx"),
              HasSubstr("slot 'dense', column 2: expected a finite number, found 'nan'"));
  EXPECT_THAT(error_of("1\t1\t1 \tf\tx"), HasSubstr("found '1 '"));
  EXPECT_THAT(error_of("1\t1\t1\t10000000000000000\tx"),
              HasSubstr("slot 'C1', column 3: expected a hexadecimal number"));
}

// Known values of the functions: xxhsum, mmh3, zlib, and the page of FNV.
// With one column it became an example of the slot's default.
TEST_F(DelimitedLine, BlankLinesAreErrors) {
  const std::vector<Slot> slots = {{.name = "a", .cells = {.missing_id = 9}}};
  DelimitedLines lines({.delimited = true, .columns = 1}, slots, nullptr);
  SlotRows rows;
  ValueCounts counts(1);
  for (const char* const line : {"", "\r"}) {
    EXPECT_THAT(lines.append(line, rows).message(), HasSubstr("the line is blank"));
    EXPECT_THAT(lines.count(line, counts).message(), HasSubstr("the line is blank"));
  }
  EXPECT_EQ(rows.rows, 0);
}

TEST(CellHashes, AreThoseOfOtherPrograms) {
  const auto hashed = [](CellHash hash, const std::string& cell, const std::string& prefix = "",
                         uint64_t seed = 0) {
    CellRule rule;
    rule.hash = hash;
    rule.prefix = prefix;
    rule.seed = seed;
    uint64_t value = 0;
    EXPECT_TRUE(hash_cell(cell, rule, value));
    return value;
  };
  EXPECT_EQ(hashed(CellHash::kXxh64, "abc"), 0x44bc2cf5ad770999ULL);
  EXPECT_EQ(hashed(CellHash::kXxh64, "bc", "a"), 0x44bc2cf5ad770999ULL);
  EXPECT_EQ(hashed(CellHash::kFnv1a, "a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(hashed(CellHash::kFnv1a, "foobar"), 0x85944171f73967e8ULL);
  EXPECT_EQ(hashed(CellHash::kCrc32, "123456789"), 0xcbf43926ULL);
  EXPECT_EQ(hashed(CellHash::kMurmur3, "test"), 0xba6bd213ULL);
  EXPECT_EQ(hashed(CellHash::kMurmur3, "Hello, world!", "", 0x9747b28c), 0x24884cbaULL);
  EXPECT_EQ(hashed(CellHash::kMurmur3, ""), 0U);
  EXPECT_EQ(hashed(CellHash::kNone, "-1"), UINT64_MAX);
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

TEST_F(MultiSlotFiles, SharesOfTrainersAreAllLinesOnce) {
  MultiSlotSource source;
  source.slots = {{.name = "ids"}};
  std::vector<int64_t> all;
  for (int f = 0; f < 4; ++f) {
    std::string text;
    for (int i = 0; i < 37 * f + 1; ++i) {
      all.push_back(f * 1000 + i);
      text += fmt::format("1 {}\n", all.back());
    }
    source.files.push_back(write(fmt::format("part-{}", f), text));
  }
  source.batch_size = 7;
  for (const int trainers : {1, 2, 5, 300}) {
    std::vector<int64_t> seen;
    for (int trainer = 0; trainer < trainers; ++trainer) {
      source.share = {trainer, trainers};
      source.readers = 1 + trainer % 3;
      const auto batches = read_all(source);
      ASSERT_TRUE(batches.ok());
      for (const auto& batch : *batches) seen.insert(seen.end(), batch.begin(), batch.end());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, all) << trainers;
  }
}

TEST_F(MultiSlotFiles, DelimitedFilesHaveHeadersAndRareValues) {
  const auto file = cells_of(R"({"name": "ids", "type": "uint64", "columns": 1,
                                 "min_count": 2, "rare": -1})",
                             R"("header": true, )");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  MultiSlotSource source;
  source.format = file->format;
  source.slots = file->slots;
  source.batch_size = 10;
  source.files = {write("a.tsv", "click\tid\n0\t5\n1\t6\n"), write("b.tsv", "click\tid\n0\t5\n")};
  const auto counts = count_values(source);
  ASSERT_TRUE(counts.ok()) << counts.status().to_string();
  source.counts = *counts;
  const auto batches = read_all(source);
  ASSERT_TRUE(batches.ok()) << batches.status().to_string();
  EXPECT_THAT(*batches, ElementsAre(ElementsAre(5, -1, 5)));
  source.files = {write("c.tsv", "click\tid\n0\t5\n1\tx\n")};
  const std::string said = ": line 3: slot 'ids', column 1: expected a whole number, found 'x'";
  EXPECT_THAT(count_values(source).status().to_string(), HasSubstr(source.files[0] + said));
  EXPECT_THAT(read_all(source).status().to_string(), HasSubstr(source.files[0] + said));
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

// It made another value of the first cell, which a hash hides.
TEST_F(MultiSlotFiles, AByteOrderMarkIsNotText) {
  for (const std::string text : {"first\nsecond", "first"}) {
    auto bytes = open_input_bytes(write("lines", "\xEF\xBB\xBF" + text));
    ASSERT_TRUE(bytes.ok());
    LineStream lines(*std::move(bytes), 2);
    std::string_view line;
    ASSERT_TRUE(*lines.next(line));
    EXPECT_EQ(line, "first");
  }
}

}  // namespace
}  // namespace millrace::io
