// Headers of safetensors files are written according to the layout and read back; malformed ones
// are refused with the tensor and the error.
#include "io/checkpoint/safetensors.h"

#include <cstring>

#include <gmock/gmock.h>

#include "io/json.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::outcome;
using testing::TempFolder;

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string put(const std::string& header, size_t data, std::optional<uint64_t> length = {}) {
    uint64_t word = length.value_or(header.size());
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &word, 8);
    testing::put_file(folder_ / "f", bytes + header + std::string(data, 'x'));
    return folder_ / "f";
  }
  StatusOr<SafetensorsHeader> read(const std::string& path) {
    MILLRACE_ASSIGN_OR_RETURN(const auto file, system_file_calls()->open(path));
    return read_safetensors_header(*file);
  }
  std::string refusal(const std::string& header, size_t data, std::optional<uint64_t> length = {}) {
    return outcome(read(put(header, data, length)));
  }

 private:
  TempFolder folder_;
};

TEST_F(SafetensorsTest, WritesAlignedSortedHeaders) {
  std::vector<SafetensorsEntry> entries = {{"b", DType::kFloat32, {3}, 0, 0},
                                           {"bytes", DType::kUint8, {5}, 0, 0},
                                           {"a", DType::kFloat32, {}, 0, 0},
                                           {"i", DType::kInt64, {2, 1}, 0, 0},
                                           {"none", DType::kInt64, {0, 7}, 0, 0}};
  const auto header = lay_out_safetensors(entries, {{"format", "x"}});
  ASSERT_EQ(outcome(header), "ok");
  EXPECT_EQ(header->size() % 64, 0);
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : entries) {
    names.push_back(entry.name);
    EXPECT_EQ(entry.begin % static_cast<uint64_t>(dtype_size(entry.dtype)), 0);
  }
  EXPECT_THAT(names, ElementsAre("i", "none", "a", "b", "bytes"));
  const auto read_back = read(put(header->substr(8), 16 + 16 + 5));
  ASSERT_EQ(outcome(read_back), "ok");
  ASSERT_EQ(read_back->entries.size(), 5);
  EXPECT_EQ(read_back->metadata.at("format"), "x");
  for (const SafetensorsEntry& entry : entries) {
    const auto found = std::ranges::find(read_back->entries, entry.name, &SafetensorsEntry::name);
    ASSERT_NE(found, read_back->entries.end());
    EXPECT_EQ(found->begin, entry.begin);
    EXPECT_EQ(found->end, entry.end);
    EXPECT_EQ(found->dims, entry.dims);
    EXPECT_EQ(found->dtype, entry.dtype);
  }
}

TEST_F(SafetensorsTest, RefusesToWriteWhatNoReaderTakes) {
  const auto refused = [](std::vector<SafetensorsEntry> entries) {
    return outcome(lay_out_safetensors(entries, {}));
  };
  const int64_t large = int64_t{1} << 40U;
  EXPECT_THAT(refused({{"a", DType::kInt8, {1}, 0, 0}, {"a", DType::kInt8, {1}, 0, 0}}),
              HasSubstr("twice"));
  EXPECT_THAT(refused({{"__metadata__", DType::kInt8, {1}, 0, 0}}), HasSubstr("reserved"));
  EXPECT_THAT(refused({{"\xFF", DType::kInt8, {1}, 0, 0}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({{"a", DType::kInt8, {large, large}, 0, 0}}), HasSubstr("out of range"));
  EXPECT_THAT(refused({{"a", DType::kInt8, {-1}, 0, 0}}), HasSubstr("out of range"));
  EXPECT_THAT(refused({{"a", DType::kComplex128, {1}, 0, 0}}), HasSubstr("no element type"));
}

TEST_F(SafetensorsTest, RefusesMalformedHeaders) {
  const std::string good = R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
  EXPECT_EQ(refusal(good, 12), "ok");
  EXPECT_EQ(refusal(good + "   ", 12), "ok");
  EXPECT_EQ(refusal("{}", 0), "ok");
  // The length word.
  EXPECT_THAT(refusal(good, 12, 1U << 30U), HasSubstr("does not fit"));
  EXPECT_THAT(refusal(good, 12, ~uint64_t{0}), HasSubstr("does not fit"));
  EXPECT_THAT(refusal("", 0), HasSubstr("begins with '{'"));
  // The data.
  EXPECT_THAT(refusal(good, 11), HasSubstr("within the 11 bytes"));
  EXPECT_THAT(refusal(good, 13), HasSubstr("expected 12 bytes of data, found 13"));
  const auto w = [&](const std::string& facts) { return refusal("{\"w\":" + facts + "}", 12); };
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[3],"data_offsets":[4,12]})"),
              HasSubstr("'w': shape [3] of F32 does not fit the range [4, 12]: expected 12 bytes, "
                        "found 8"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"), HasSubstr("gap"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[3],"data_offsets":[12,0]})"), HasSubstr("range"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[-3],"data_offsets":[0,12]})"), HasSubstr("'shape'"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[3.0],"data_offsets":[0,12]})"), HasSubstr("'shape'"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[9223372036854775807,3],"data_offsets":[0,12]})"),
              HasSubstr("more than 2^63"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,3],)"
                R"("data_offsets":[0,12]})"),
              HasSubstr("17 dims"));
  EXPECT_THAT(w(R"({"dtype":"F33","shape":[3],"data_offsets":[0,12]})"), HasSubstr("\"F33\""));
  EXPECT_THAT(w(R"({"dtype":3,"shape":[3],"data_offsets":[0,12]})"), HasSubstr("'dtype'"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[3],"data_offsets":[0]})"), HasSubstr("data_offsets"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12],"x":1})"),
              HasSubstr("\"x\" is not one of"));
  EXPECT_THAT(w("3"), HasSubstr("expected an object"));
  EXPECT_THAT(w(R"({"dtype":"F32","shape":[3],"shape":[3],"data_offsets":[0,12]})"),
              HasSubstr("\"shape\" in an object, found two"));
  // Two tensors.
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("v":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                      12),
              HasSubstr("overlaps"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                      R"("w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                      12),
              HasSubstr("\"w\" in an object, found two"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", 0),
              HasSubstr("__metadata__: expected an object, found "));
  EXPECT_THAT(refusal("{\"w\":", 0), HasSubstr("not valid JSON at line 1"));
  EXPECT_THAT(refusal("{} x", 0), HasSubstr("not valid JSON at line 1"));
  EXPECT_THAT(refusal("{\"\xFF\":1}", 0), HasSubstr("not valid JSON at line 1"));
  EXPECT_THAT(refusal("{\"w\":" + std::string(100000, '['), 0), HasSubstr("nested"));
}

TEST_F(SafetensorsTest, LimitsTheHeader) {
  const std::string good = R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
  const auto file = system_file_calls()->open(put(good, 12));
  ASSERT_EQ(outcome(file), "ok");
  SafetensorsLimits limits;
  limits.max_header_bytes = good.size();
  EXPECT_EQ(outcome(read_safetensors_header(**file, limits)), "ok");
  limits.max_header_bytes = good.size() - 1;
  EXPECT_THAT(outcome(read_safetensors_header(**file, limits)),
              HasSubstr("a header of 55 bytes, above 54"));
}

TEST(Json, LimitsTheNumberOfValues) {
  std::string text = "[";
  for (int i = 0; i < 1000; ++i) text += "0,";
  text += "0]";
  EXPECT_EQ(outcome(parse_json(text)), "ok");
  EXPECT_EQ(parse_json(text, {.max_values = 1000}).status().code(), StatusCode::kResource);
}

}  // namespace
}  // namespace millrace::io
