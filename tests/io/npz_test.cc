// npz archives: values of every kind survive the naming conventions; compressed members are read;
// archives that are inconsistent, damaged or too large after decompression are refused.

#include "io/npz.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/params.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using millrace::testing::bytes_of;
using millrace::testing::put_file;
using millrace::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Values = std::map<std::string, Value>;

Tensor floats(llvm::ArrayRef<int64_t> dims, Lod lod = {}) {
  Tensor tensor;
  EXPECT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = static_cast<float>(i);
  tensor.set_lod(std::move(lod));
  return tensor;
}

class Npz : public ::testing::Test {
 protected:
  // The values after writing and reading; fails the test on an error.
  Values round_trip(const Values& values) {
    const auto bytes = npz_bytes(values);
    EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
    EXPECT_EQ(*bytes, *npz_bytes(values)) << "same values, same bytes";
    put_file(path_, *bytes);
    auto again = read_values(path_);
    EXPECT_TRUE(again.ok()) << again.status().to_string();
    if (again.ok()) expect_one_by_one(*again);
    return again.ok() ? *std::move(again) : Values();
  }
  // Reading the values one at a time must return the same.
  void expect_one_by_one(const Values& values) {
    const auto file = NpzFile::open(path_);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    std::vector<std::string> names;
    for (const auto& [name, value] : values) {
      names.push_back(name);
      const auto loaded = file->load(name);
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ(*npz_bytes(values_of(name, *loaded)), *npz_bytes(values_of(name, value))) << name;
    }
    EXPECT_EQ(file->names(), names);
  }
  static Values values_of(const std::string& name, const Value& value) {
    Values one;
    auto copy = clone(value);
    EXPECT_TRUE(copy.ok());
    if (copy.ok()) one[name] = *std::move(copy);
    return one;
  }
  // Error of reading the members as values; "" if there is none.
  std::string error_of(const Values& members) {
    put_file(path_, *npz_bytes(members));
    const auto values = read_values(path_);
    return values.ok() ? "" : values.status().to_string();
  }
  static void put_integers(Values& members, const std::string& name,
                           std::initializer_list<int64_t> numbers) {
    auto& tensor = members[name].as<Tensor>();
    ASSERT_TRUE(tensor.resize(DType::kInt64, static_cast<int64_t>(numbers.size())).ok());
    std::copy(numbers.begin(), numbers.end(), tensor.data<int64_t>());
  }
  TempFolder folder_;
  std::string path_ = folder_ / "a.npz";
};

TEST_F(Npz, TensorsKeepLodAndNames) {
  Values values;
  values["x"].as<Tensor>() = floats({5, 2}, Lod({{0, 1, 2}, {0, 2, 5}}));
  values["step0/a.b/c"].as<Tensor>() = floats({});
  values["step10/x"].as<Tensor>() = floats({0, 3});
  const Values again = round_trip(values);
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(again.at("x").get_if<Tensor>()->lod(), values["x"].get_if<Tensor>()->lod());
  EXPECT_EQ(again.at("x").get_if<Tensor>()->data<float>()[9], 9.0F);
  EXPECT_EQ(again.at("step0/a.b/c").get_if<Tensor>()->rank(), 0U);
  EXPECT_THAT(again.at("step10/x").get_if<Tensor>()->dims(), ElementsAre(0, 3));
}

TEST_F(Npz, NoValuesGiveAnEmptyArchive) {
  EXPECT_TRUE(round_trip({}).empty());
}

TEST_F(Npz, Bfloat16KeepsItsType) {
  Values values;
  auto& tensor = values["h"].as<Tensor>();
  ASSERT_TRUE(tensor.resize(DType::kBfloat16, {2}).ok());
  tensor.data<Bfloat16>()[0] = 1.5F;
  tensor.data<Bfloat16>()[1] = -2.0F;
  const Values again = round_trip(values);
  ASSERT_EQ(again.at("h").get_if<Tensor>()->dtype(), DType::kBfloat16);
  EXPECT_EQ(static_cast<float>(again.at("h").get_if<Tensor>()->data<Bfloat16>()[1]), -2.0F);
  EXPECT_TRUE(read_npz(path_)->contains("h.dtype"));
}

TEST_F(Npz, SelectedRowsKeepRowsAndHeight) {
  Values values;
  values["t"].as<SelectedRows>() = {{7, 0, 7}, 9, floats({3, 2})};
  const Values again = round_trip(values);
  const auto& rows = *again.at("t").get_if<SelectedRows>();
  EXPECT_THAT(rows.rows, ElementsAre(7, 0, 7));
  EXPECT_EQ(rows.height, 9);
  EXPECT_THAT(rows.value.dims(), ElementsAre(3, 2));
}

TEST_F(Npz, ArraysKeepLengthAndLod) {
  Values values;
  auto& array = values["a"].as<TensorArray>();
  array.emplace_back();
  array.push_back(floats({2, 1}, Lod({{0, 2}})));
  array.emplace_back();
  values["empty"].as<TensorArray>().clear();
  auto& many = values["many"].as<TensorArray>();
  for (int i = 0; i < 12; ++i) many.push_back(floats({i}));
  const Values again = round_trip(values);
  const auto& read = *again.at("a").get_if<TensorArray>();
  ASSERT_EQ(read.size(), 3U);
  // elements that were never set are read back as empty
  EXPECT_EQ(read[0].numel(), 0);
  EXPECT_EQ(read[1].lod().to_string(), "[[0, 2]]");
  EXPECT_EQ(read[2].numel(), 0);
  EXPECT_EQ(again.at("empty").get_if<TensorArray>()->size(), 0U);
  EXPECT_EQ(again.at("many").get_if<TensorArray>()->at(11).numel(), 11);
}

TEST_F(Npz, ArraysNeedNoLength) {
  Values members;
  members["a.0"].as<Tensor>() = floats({1});
  members["a.1"].as<Tensor>() = floats({2});
  put_file(path_, *npz_bytes(members));
  const auto values = read_values(path_);
  ASSERT_TRUE(values.ok()) << values.status().to_string();
  EXPECT_EQ(values->at("a").get_if<TensorArray>()->size(), 2U);
}

TEST_F(Npz, CompanionsMustFit) {
  Values members;
  members["x"].as<Tensor>() = floats({5, 2});
  put_integers(members, "x.lod0", {0, 4});
  EXPECT_THAT(error_of(members),
              HasSubstr("a.npz: member 'x': LoD level 0: expected a last offset"));
  members.erase("x.lod0");
  put_integers(members, "x.rows", {0, 1, 2, 3, 9});
  EXPECT_THAT(error_of(members), HasSubstr("member 'x.height' is missing"));
  put_integers(members, "x.height", {8});
  EXPECT_THAT(error_of(members), HasSubstr("expected rows below 8, found 9"));
  put_integers(members, "x.rows", {0, 1});
  EXPECT_THAT(error_of(members), HasSubstr("expected 2 rows as in 'x.rows', found f32 [5, 2]"));
  members["x.rows"].as<Tensor>() = floats({5});
  EXPECT_THAT(error_of(members), HasSubstr("'x.rows': expected int64, found f32 [5]"));
  members.clear();
  members["h"].as<Tensor>() = floats({8});
  ASSERT_TRUE(members["h.dtype"].as<Tensor>().resize(DType::kUint8, {8}).ok());
  EXPECT_THAT(error_of(members), HasSubstr("'h.dtype': expected the bytes of \"bfloat16\""));
}

// Whole numbers of 16 bits would be taken for the bits of other numbers.
TEST_F(Npz, Uint16WithoutItsMeaningIsRefused) {
  Values values;
  ASSERT_TRUE(values["h"].as<Tensor>().resize(DType::kBfloat16, {2}).ok());
  std::string bytes = *npz_bytes(values);
  const std::string companion = "h.dtype";
  for (size_t at = bytes.find(companion); at != std::string::npos; at = bytes.find(companion))
    bytes.replace(at, companion.size(), "h.other");
  put_file(path_, bytes);
  EXPECT_THAT(read_values(path_).status().to_string(),
              HasSubstr("member 'h' is of uint16: expected a member 'h.dtype'"));
}

TEST_F(Npz, ClaimedLengthsCostNothing) {
  Values members;
  put_integers(members, "a.length", {int64_t{1} << 60});
  EXPECT_THAT(error_of(members), HasSubstr("member 'a.0' is missing"));
  put_integers(members, "a.length", {-1});
  EXPECT_THAT(error_of(members), HasSubstr("one non-negative number"));
}

TEST_F(Npz, OtherValuesAreRefused) {
  Values values;
  values["s"].as<Strings>().push_back("text");
  const auto bytes = npz_bytes(values);
  ASSERT_FALSE(bytes.ok());
  EXPECT_THAT(bytes.status().message(), HasSubstr("'s' is strings, which an npz archive"));
}

// numpy.savez_compressed of x = arange(1000) as int64.
TEST_F(Npz, ReadsPackedMembers) {
  const auto values = read_values("tests/data/npz/packed.npz");
  ASSERT_TRUE(values.ok()) << values.status().to_string();
  const auto& tensor = *values->at("x").get_if<Tensor>();
  ASSERT_EQ(tensor.numel(), 1000);
  EXPECT_EQ(tensor.data<int64_t>()[999], 999);
}

TEST_F(Npz, DamageIsFound) {
  Values values;
  values["x"].as<Tensor>() = floats({100});
  std::string bytes = *npz_bytes(values);
  bytes[bytes.find("NUMPY") + 300] ^= 1;  // an element; only the checksum detects it
  put_file(path_, bytes);
  EXPECT_THAT(read_npz(path_).status().to_string(), HasSubstr("a.npz: member 'x.npy': "));
  std::string packed = bytes_of("tests/data/npz/packed.npz");
  packed[packed.size() / 2] ^= 0x55;
  put_file(path_, packed);
  EXPECT_FALSE(read_npz(path_).ok());
}

TEST_F(Npz, NamesThatLookLikeElementsStayBesideTheirBase) {
  Values values;
  values["x"].as<Tensor>() = floats({2});
  values["x.0"].as<Tensor>() = floats({3});
  values["x.length"].as<Tensor>() = floats({4});
  const Values back = round_trip(values);
  ASSERT_EQ(back.size(), 3);
  EXPECT_EQ(back.at("x").get_if<Tensor>()->numel(), 2);
  EXPECT_EQ(back.at("x.0").get_if<Tensor>()->numel(), 3);
  // the type note of "h" is not a value, so an array may use its name
  Values noted;
  ASSERT_TRUE(noted["h"].as<Tensor>().resize(DType::kBfloat16, {1}).ok());
  std::memset(noted["h"].as<Tensor>().raw(), 0, 2);
  noted["h.dtype"].as<TensorArray>().push_back(floats({2}));
  EXPECT_EQ(round_trip(noted).size(), 2);
}

// Only the stored length shows that "x.5" is not an element.
TEST_F(Npz, NamesBehindTheEndOfAnArrayStayBesideIt) {
  Values values;
  values["x"].as<TensorArray>().push_back(floats({2}));
  values["x.5"].as<Tensor>() = floats({3});
  values["x.00"].as<Tensor>() = floats({4});
  const Values back = round_trip(values);
  ASSERT_EQ(back.size(), 3);
  EXPECT_EQ(back.at("x").get_if<TensorArray>()->size(), 1U);
  EXPECT_EQ(back.at("x.5").get_if<Tensor>()->numel(), 3);
  EXPECT_EQ(back.at("x.00").get_if<Tensor>()->numel(), 4);
}

TEST_F(Npz, EveryCutIsRefused) {
  const std::string whole = bytes_of("tests/data/npz/packed.npz");
  for (size_t size = 0; size < whole.size(); size += 7) {
    put_file(path_, whole.substr(0, size));
    EXPECT_FALSE(read_npz(path_).ok()) << size;
  }
}

TEST_F(Npz, LimitsHold) {
  const std::string packed = "tests/data/npz/packed.npz";
  EXPECT_EQ(read_npz(packed, {.max_members = 0}).status().code(), StatusCode::kResource);
  EXPECT_EQ(read_npz(packed, {.max_total_bytes = 8000}).status().code(), StatusCode::kResource);
  const auto bomb = read_npz(packed, {.max_ratio = 3, .unlimited_ratio_bytes = 4096});
  EXPECT_EQ(bomb.status().code(), StatusCode::kResource);
  EXPECT_THAT(bomb.status().message(), HasSubstr("bytes unpacked from"));
  EXPECT_TRUE(read_npz(packed, {.max_total_bytes = 9000}).ok());
}

TEST_F(Npz, RefusesOtherFiles) {
  EXPECT_EQ(read_npz(folder_ / "none.npz").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_npz(folder_.path()).status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(read_npz("tests/data/models/linear/x.npy").status().to_string(),
              HasSubstr("not a readable zip archive"));
}

}  // namespace
}  // namespace millrace::io
