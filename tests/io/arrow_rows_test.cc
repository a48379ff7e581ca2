// Arrow streams as examples: types, nulls, offsets, and streams that break the interface.

#include "io/multi_slot/arrow_rows.h"

#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "io/multi_slot/reader.h"
#include "tests/io/arrow_columns.h"

namespace millrace::io {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestColumn;
using testing::TestStream;

constexpr auto kNone = std::nullopt;

template <typename T>
TestColumn numbers(const char* format, const std::vector<T>& values) {
  return {"c", format, static_cast<int64_t>(values.size()), {kNone, bytes_of(values)}};
}

// Texts "ab", "", "7".
TestColumn texts(const char* format = "u") {
  const std::string offsets = std::string_view(format) == "U" ? bytes_of<int64_t>({0, 2, 2, 3})
                                                              : bytes_of<int32_t>({0, 2, 2, 3});
  return {"c", format, 3, {kNone, offsets, "ab7"}};
}

// Lists [1, 2], [], [3].
TestColumn lists() {
  return {
      "c", "+l", 3, {kNone, bytes_of<int32_t>({0, 2, 2, 3})}, {numbers<int64_t>("l", {1, 2, 3})}};
}

Slot ids_of(CellRule rule = {}) {
  rule.names = {"c"};
  return {.name = "ids", .cells = std::move(rule)};
}

Slot floats_of(CellRule rule = {}) {
  rule.names = {"c"};
  return {.name = "x", .is_float = true, .cells = std::move(rule)};
}

// Reads all rows of a stream with one column.
StatusOr<SlotRows> read_arrow(TestStream& stream, const Slot& slot) {
  SlotRows rows;
  const std::vector<Slot> slots = {slot};
  {
    ArrowRows reader(slots, nullptr);
    MILLRACE_RETURN_IF_ERROR(reader.open(stream.opener()));
    while (true) {
      MILLRACE_ASSIGN_OR_RETURN(const bool more, reader.next());
      if (!more) break;
      MILLRACE_RETURN_IF_ERROR(reader.append(rows));
    }
  }
  return rows;
}

std::vector<int64_t> ids_in(const TestColumn& column, const CellRule& rule = {}) {
  TestStream stream({{column}}, {column.length});
  const StatusOr<SlotRows> rows = read_arrow(stream, ids_of(rule));
  EXPECT_TRUE(rows.ok()) << rows.status().to_string();
  EXPECT_EQ(stream.open(), 0);
  return rows.ok() && rows->rows > 0 ? rows->columns[0].ids : std::vector<int64_t>();
}

std::vector<float> floats_in(const TestColumn& column, const CellRule& rule = {}) {
  TestStream stream({{column}}, {column.length});
  const StatusOr<SlotRows> rows = read_arrow(stream, floats_of(rule));
  EXPECT_TRUE(rows.ok()) << rows.status().to_string();
  return rows.ok() && rows->rows > 0 ? rows->columns[0].floats : std::vector<float>();
}

std::string error_in(const TestColumn& column, const Slot& slot = ids_of()) {
  TestStream stream({{column}}, {column.length});
  const StatusOr<SlotRows> rows = read_arrow(stream, slot);
  EXPECT_FALSE(rows.ok()) << column.format;
  EXPECT_EQ(stream.open(), 0) << "arrays and schemas are released after an error, too";
  return rows.ok() ? "" : rows.status().message();
}

TEST(ArrowRows, NumbersBecomeIds) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(ids_in(numbers<int8_t>("c", {-1, 127})), ElementsAre(-1, 127));
  EXPECT_THAT(ids_in(numbers<uint8_t>("C", {1, 255})), ElementsAre(1, 255));
  EXPECT_THAT(ids_in(numbers<int16_t>("s", {-300, 5})), ElementsAre(-300, 5));
  EXPECT_THAT(ids_in(numbers<uint16_t>("S", {65535})), ElementsAre(65535));
  EXPECT_THAT(ids_in(numbers<int32_t>("i", {-70000})), ElementsAre(-70000));
  EXPECT_THAT(ids_in(numbers<uint32_t>("I", {4294967295U})), ElementsAre(4294967295));
  EXPECT_THAT(ids_in(numbers<int64_t>("l", {kLeast, 7})), ElementsAre(kLeast, 7));
  EXPECT_THAT(ids_in(numbers<uint64_t>("L", {18446744073709551615ULL})), ElementsAre(-1));
  EXPECT_THAT(ids_in(numbers<int64_t>("tsu:Europe/Berlin", {1700000000})), ElementsAre(1700000000));
  EXPECT_THAT(ids_in(numbers<int32_t>("tdD", {19000})), ElementsAre(19000));
  EXPECT_THAT(ids_in({"c", "b", 3, {kNone, "\x05"}}), ElementsAre(1, 0, 1));
}

TEST(ArrowRows, NumbersBecomeFloats) {
  EXPECT_THAT(floats_in(numbers<float>("f", {0.5F, -2})), ElementsAre(0.5F, -2));
  EXPECT_THAT(floats_in(numbers<double>("g", {1e-3})), ElementsAre(1e-3F));
  EXPECT_THAT(floats_in(numbers<int32_t>("i", {3})), ElementsAre(3));
  EXPECT_THAT(floats_in({"c", "u", 1, {kNone, bytes_of<int32_t>({0, 3}), "0.5"}}),
              ElementsAre(0.5F));
}

// As the same cells of delimited text.
TEST(ArrowRows, TextsAndNumbersAreHashedAlike) {
  const CellRule rule = {.hash = CellHash::kXxh64, .prefix = "C=", .buckets = 1000, .first_id = 1};
  uint64_t value = 0;
  ASSERT_TRUE(hash_cell("7", rule, value));
  const auto seven = static_cast<int64_t>(1 + value % 1000);
  EXPECT_EQ(ids_in(texts(), rule).back(), seven);
  EXPECT_EQ(ids_in(texts("U"), rule).back(), seven);
  EXPECT_THAT(ids_in(numbers<int32_t>("i", {7}), rule), ElementsAre(seven));
  EXPECT_THAT(ids_in(numbers<int64_t>("l", {1007}), {.buckets = 10}), ElementsAre(7));
}

TEST(ArrowRows, ShortAndLongViews) {
  std::string views = bytes_of<int32_t>({2, 0, 0, 0, 13, 0, 1, 2});
  views.replace(4, 2, "42");
  const TestColumn column = {
      "c", "vu", 2, {kNone, views, "", "xx0000000000043", bytes_of<int64_t>({0, 15})}};
  EXPECT_THAT(ids_in(column), ElementsAre(42, 43));
  TestColumn outside = column;
  outside.buffers.back() = bytes_of<int64_t>({0, 14});
  EXPECT_THAT(error_in(outside), HasSubstr("a view of 13 bytes at 2 of buffer 1 of 2"));
}

TEST(ArrowRows, DictionariesAndTheirNulls) {
  TestColumn column = numbers<int8_t>("c", {2, 0});
  column.dictionary = {numbers<int64_t>("l", {10, 11, 12})};
  EXPECT_THAT(ids_in(column), ElementsAre(12, 10));
  column.dictionary[0].buffers[0] = "\x06";
  EXPECT_THAT(ids_in(column, {.missing_id = 99}), ElementsAre(12, 99));
  column.buffers[1] = bytes_of<int8_t>({3, -1});
  EXPECT_THAT(error_in(column), HasSubstr("an index outside of a dictionary with 3 values"));
}

TEST(ArrowRows, NullsAreMissingValues) {
  TestColumn column = numbers<int64_t>("l", {1, 2, 3});
  column.buffers[0] = "\x05";
  EXPECT_THAT(ids_in(column, {.missing_id = 0}), ElementsAre(1, 0, 3));
  EXPECT_THAT(error_in(column), HasSubstr("slot 'ids', column 'c': the value is missing"));
  EXPECT_THAT(ids_in({"c", "n", 2}, {.missing_id = 4}), ElementsAre(4, 4));
  EXPECT_THAT(floats_in(column, {.missing = -1.0}), ElementsAre(1, -1, 3));
}

TEST(ArrowRows, ListsHaveAllTheirValues) {
  TestStream stream({{lists()}}, {3});
  const auto rows = read_arrow(stream, ids_of({.missing_id = 0}));
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  EXPECT_THAT(rows->columns[0].ids, ElementsAre(1, 2, 0, 3));
  EXPECT_THAT(rows->columns[0].ends, ElementsAre(2, 3, 4));
  EXPECT_THAT(error_in(lists()), HasSubstr("the value is missing and the slot has no default"));
  const TestColumn fixed = {"c", "+w:2", 2, {kNone}, {numbers<float>("f", {1, 2, 3, 4})}};
  EXPECT_THAT(floats_in(fixed), ElementsAre(1, 2, 3, 4));
  Slot dense = floats_of();
  dense.is_dense = true;
  dense.dims = {3};
  EXPECT_THAT(error_in(fixed, dense), HasSubstr("slot 'x': expected 3 values, found 2"));
}

// Every array has an offset: the struct, its columns, items and dictionaries.
TEST(ArrowRows, SlicedArrays) {
  TestColumn column = lists();
  column.children[0].buffers[1] = bytes_of<int64_t>({9, 1, 2, 3});
  column.children[0].offset = 1;
  column.buffers[1] = bytes_of<int32_t>({7, 0, 2, 2, 3});
  column.offset = 1;
  column.buffers[0] = "\x17";  // the last row, bit 3, is null
  TestStream stream({{column}}, {2});
  stream.row_offset = 1;
  const auto rows = read_arrow(stream, ids_of({.missing_id = -5}));
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  EXPECT_THAT(rows->columns[0].ids, ElementsAre(-5, -5));
  stream.row_offset = 0;
  const auto first = read_arrow(stream, ids_of({.missing_id = -5}));
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_THAT(first->columns[0].ids, ElementsAre(1, 2, -5));
}

TEST(ArrowRows, ValuesThatASlotCannotTake) {
  EXPECT_THAT(error_in(numbers<double>("g", {1.5})),
              HasSubstr("slot 'ids', column 'c': expected a whole number, found 1.5"));
  EXPECT_THAT(error_in(texts()), HasSubstr("expected a whole number, found 'ab'"));
  EXPECT_THAT(error_in(texts(), floats_of()), HasSubstr("expected a finite number, found 'ab'"));
  EXPECT_THAT(error_in(numbers<double>("g", {1e300}), floats_of()), HasSubstr("found 1e+300"));
  EXPECT_THAT(error_in(numbers<float>("f", {std::numeric_limits<float>::quiet_NaN()}), floats_of()),
              HasSubstr("found nan"));
  EXPECT_THAT(error_in(numbers<int32_t>("i", {10}), ids_of({.hash = CellHash::kHexadecimal})),
              HasSubstr("expected text with a hexadecimal number, found 10"));
}

TEST(ArrowRows, SchemasThatCannotBeRead) {
  EXPECT_THAT(error_in({"c", "d:10,2", 0, {}}),
              HasSubstr("slot 'ids': column 'c': the Arrow type 'd:10,2'"));
  EXPECT_THAT(error_in({"c", "", 0, {}}), HasSubstr("the Arrow type ''"));
  EXPECT_THAT(error_in({"c", "+w:x", 0, {}}), HasSubstr("size of lists, found '+w:x'"));
  EXPECT_THAT(error_in({"c", "+l", 0, {}}), HasSubstr("a schema of type '+l' with 0 children"));
  EXPECT_THAT(error_in({"c", "+l", 0, {}, {lists()}}),
              HasSubstr("'+l' within a list or dictionary"));
  EXPECT_THAT(error_in({"c", "u", 0, {}, {}, {texts()}}),
              HasSubstr("expected whole numbers as indices of a dictionary, found 'u'"));
  EXPECT_THAT(error_in({"other", "l", 0, {}}),
              HasSubstr("slot 'ids': the stream has no column 'c'"));
  TestStream twice({{texts(), texts()}}, {3});
  EXPECT_THAT(read_arrow(twice, ids_of()).status().message(), HasSubstr("has two columns 'c'"));
  TestStream no_struct({{texts()}}, {3});
  no_struct.root = "u";
  EXPECT_THAT(read_arrow(no_struct, ids_of()).status().message(),
              HasSubstr("expected an Arrow stream of structs ('+s'), found 'u'"));
}

// The error of a column after a change.
std::string error_after(TestColumn column, const std::function<void(TestColumn&)>& change) {
  const int64_t rows = column.length;
  change(column);
  TestStream stream({{std::move(column)}}, {rows});
  const StatusOr<SlotRows> read =
      read_arrow(stream, ids_of({.missing_id = 0, .hash = CellHash::kCrc32}));
  EXPECT_FALSE(read.ok());
  EXPECT_EQ(stream.open(), 0);
  return read.status().message();
}

TEST(ArrowRows, ArraysThatBreakTheInterface) {
  const auto with_ends = [](std::vector<int32_t> ends) {
    return [ends](TestColumn& c) { c.buffers[1] = bytes_of(ends); };
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.length = -1; }),
              HasSubstr("has length -1"));
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.length = 2; }),
              HasSubstr("expected 3 values, found 2"));
  EXPECT_THAT(error_after(texts(), [&](TestColumn& c) { c.length = kMost; }),
              HasSubstr("has length"));
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.offset = -2; }),
              HasSubstr("has offset -2"));
  EXPECT_THAT(error_after(texts(), [&](TestColumn& c) { c.offset = kMost; }),
              HasSubstr("has offset"));
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.null_count = 4; }),
              HasSubstr("has null count 4"));
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.null_count = 1; }),
              HasSubstr("1 nulls, but no bits"));
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.buffers.pop_back(); }),
              HasSubstr("expected 3 buffers for type 'u', found 2"));
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.buffers[1] = kNone; }),
              HasSubstr("buffer 1 is a null pointer"));
  EXPECT_THAT(error_after(texts(), [](TestColumn& c) { c.buffers[2] = kNone; }),
              HasSubstr("buffer 2 is a null pointer"));
  EXPECT_THAT(error_after(texts(), with_ends({-1, 2, 2, 3})),
              HasSubstr("a text from -1 to 2 of 3 bytes"));
  EXPECT_THAT(error_after(texts(), with_ends({0, 9, 2, 3})),
              HasSubstr("a text from 0 to 9 of 3 bytes"));
  EXPECT_THAT(error_after(texts(), with_ends({0, 2, 1, 3})), HasSubstr("a text from 2 to 1"));
  EXPECT_THAT(error_after(lists(), with_ends({0, 2, 2, 4})),
              HasSubstr("a list from 2 to 4 of 3 values"));
  EXPECT_THAT(error_after(lists(), with_ends({0, -2, 2, 3})), HasSubstr("a list from 0 to -2"));
}

TEST(ArrowRows, ArraysWhoseChildrenDoNotFit) {
  TestStream fewer({{numbers<int64_t>("l", {1})}, {}}, {1, 1});
  EXPECT_THAT(read_arrow(fewer, ids_of()).status().message(),
              HasSubstr("has 0 columns, its schema has 1"));
  TestStream childless({{lists()}, {texts()}}, {3, 3});
  EXPECT_THAT(read_arrow(childless, ids_of({.missing_id = 0})).status().message(),
              HasSubstr("expected 2 buffers for type '+l', found 3"));
  TestStream null_rows({{texts()}}, {3});
  null_rows.null_rows = 2;
  EXPECT_THAT(read_arrow(null_rows, ids_of()).status().message(),
              HasSubstr("2 rows that are null"));
  TestStream negative({{texts()}}, {-3});
  EXPECT_THAT(read_arrow(negative, ids_of()).status().message(), HasSubstr("has length -3"));
}

TEST(ArrowRows, StreamsThatFail) {
  TestStream stream({{numbers<int64_t>("l", {1})}}, {1});
  stream.error = "the disk is gone";
  const auto rows = read_arrow(stream, ids_of());
  EXPECT_EQ(rows.status().code(), StatusCode::kIo);
  EXPECT_THAT(rows.status().message(), HasSubstr("failed in get_next: the disk is gone"));
  const std::vector<Slot> slots = {ids_of()};
  ArrowRows released(slots, nullptr);
  EXPECT_THAT(released.open([] { return std::make_shared<ArrowArrayStream>(); }).message(),
              HasSubstr("the Arrow stream has been released"));
  ArrowRows refused(slots, nullptr);
  EXPECT_THAT(refused
                  .open([]() -> StatusOr<std::shared_ptr<ArrowArrayStream>> {
                    return Status(StatusCode::kNotFound, "no such table");
                  })
                  .message(),
              HasSubstr("no such table"));
}

// Batches, shares and errors are those of files: rows have the part of lines.
TEST(ArrowRows, ReadersReadStreams) {
  TestStream one({{numbers<int64_t>("l", {1, 2, 3})}, {numbers<int64_t>("l", {4, 5})}}, {3, 2});
  TestStream two({{numbers<int64_t>("l", {10})}}, {1});
  MultiSlotSource source;
  source.files = {"one", "two"};
  source.streams = {{"one", one.opener()}, {"two", two.opener()}};
  source.format.arrow = true;
  source.slots = {ids_of({.min_count = 1, .rare_id = 0})};
  source.batch_size = 4;
  std::vector<int64_t> counted;
  auto counts = count_values(source, &counted);
  ASSERT_TRUE(counts.ok()) << counts.status().to_string();
  EXPECT_THAT(counted, ElementsAre(5, 1));
  EXPECT_EQ((*counts)->of(0, 5), 1);
  source.counts = *counts;
  {
    MultiSlotReader reader(source);
    SlotRows batch;
    ASSERT_TRUE(reader.next(batch).ok());
    EXPECT_THAT(batch.columns[0].ids, ElementsAre(1, 2, 3, 4));
    ASSERT_TRUE(reader.next(batch).ok());
    EXPECT_THAT(batch.columns[0].ids, ElementsAre(5, 10));
    ASSERT_TRUE(reader.next(batch).ok());
    EXPECT_EQ(batch.rows, 0);
    EXPECT_THAT(reader.lines(), ElementsAre(5, 1));
  }
  TestStream bad({{numbers<double>("g", {1})}}, {1});
  source.streams["two"] = bad.opener();
  source.batch_size = 5;
  MultiSlotReader reader(source);
  SlotRows batch;
  ASSERT_TRUE(reader.next(batch).ok());
  EXPECT_THAT(reader.next(batch).to_string(),
              ::testing::AllOf(HasSubstr("two"), HasSubstr("row 0: slot 'ids', column 'c'")));
}

TEST(ArrowSlots, ColumnsHaveNames) {
  const auto program = Program::create();
  const auto file = parse_slots(R"({"format": "arrow", "slots": [
      {"name": "a", "type": "uint64", "columns": ["x", "y"], "default": 3, "hash": {"function": "crc32"}},
      {"name": "b", "type": "float", "is_dense": true, "shape": [-1, 4], "columns": "list"},
      {"name": "c", "type": "uint64"}]})",
                                *program);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->format.arrow);
  EXPECT_THAT(file->slots[0].cells.names, ElementsAre("x", "y"));
  EXPECT_EQ(file->slots[0].cells.missing_id, 3);
  EXPECT_THAT(file->slots[1].cells.names, ElementsAre("list"));
  EXPECT_EQ(file->slots[1].width(), 4U);
  EXPECT_THAT(file->slots[2].cells.names, ElementsAre("c"));
  for (const auto& [slots, said] : std::vector<std::pair<const char*, const char*>>{
           {R"("slots": [{"name": "a", "type": "uint64", "columns": 3}])",
            "the name of a column or a list of names, found 3"},
           {R"("slots": [{"name": "a", "type": "uint64", "columns": []}])",
            "a list of names, found []"},
           {R"("slots": [{"name": "a", "type": "float", "hash": {"function": "crc32"}}])",
            "only for ids"},
           {R"("separator": ",", "slots": [{"name": "a", "type": "float"}])",
            "separator: only with"},
           {R"("pipe_command": "awk", "slots": [{"name": "a", "type": "float"}])",
            "an Arrow stream has no lines"}}) {
    const auto refused = parse_slots(fmt::format(R"({{"format": "arrow", {}}})", slots), *program);
    EXPECT_THAT(refused.status().message(), HasSubstr(said)) << slots;
  }
}

}  // namespace
}  // namespace millrace::io
