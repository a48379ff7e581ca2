// Parameter files: files of the original are read to its values and written to its bytes.

#include "io/params.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using millrace::testing::bytes_of;
using millrace::testing::put_file;
using millrace::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kData = "tests/data/params/";

ParamSpec spec_of(const std::string& name, VarKind kind = VarKind::kLodTensor) {
  ParamSpec spec;
  spec.name = name;
  spec.kind = kind;
  return spec;
}

Value load_params(const std::string& name, VarKind kind = VarKind::kLodTensor) {
  const auto source = ByteSource::open(kData + name);
  EXPECT_TRUE(source.ok()) << source.status().to_string();
  auto value = load_param(*source, spec_of(name, kind));
  EXPECT_TRUE(value.ok()) << value.status().to_string();
  return value.ok() ? *std::move(value) : Value();
}

template <typename T>
void expect_counting(const std::string& name, T first) {
  const Value value = load_params(name);
  const auto& tensor = *value.get_if<Tensor>();
  ASSERT_EQ(tensor.dtype(), kDTypeOf<T>) << name;
  EXPECT_THAT(tensor.dims(), ElementsAre(2, 3)) << name;
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(static_cast<double>(tensor.data<T>()[i]), static_cast<double>(first) + i) << name;
}

TEST(Params, ReadsEveryElementType) {
  expect_counting<uint8_t>("uint8", 0);
  expect_counting<int8_t>("int8", -2);
  expect_counting<int16_t>("int16", -2);
  expect_counting<int32_t>("int32", -2);
  expect_counting<int64_t>("int64", -2);
  expect_counting<Float16>("float16", -2.0F);
  expect_counting<float>("float32", -2.0F);
  expect_counting<double>("float64", -2.0);
  const Value value = load_params("bool");
  EXPECT_THAT(value.get_if<Tensor>()->values<bool>(),
              ElementsAre(false, true, false, true, false, true));
}

TEST(Params, ReadsLodRankZeroAndEmpty) {
  const Value lod = load_params("lod2");
  EXPECT_EQ(lod.get_if<Tensor>()->lod().to_string(), "[[0, 2, 3], [0, 2, 5, 7]]");
  EXPECT_EQ(lod.get_if<Tensor>()->data<float>()[13], 13.0F);
  const Value scalar = load_params("rank0");
  EXPECT_EQ(scalar.get_if<Tensor>()->rank(), 0U);
  EXPECT_EQ(scalar.get_if<Tensor>()->data<float>()[0], 2.5F);
  const Value empty = load_params("empty");
  EXPECT_TRUE(empty.initialized());
  EXPECT_THAT(empty.get_if<Tensor>()->dims(), ElementsAre(0, 4));
}

TEST(Params, ReadsSelectedRows) {
  const Value value = load_params("rows", VarKind::kSelectedRows);
  const auto& rows = *value.get_if<SelectedRows>();
  EXPECT_EQ(rows.height, 9);
  EXPECT_THAT(rows.rows, ElementsAre(7, 0, 4));
  EXPECT_THAT(rows.value.values<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Params, WritesTheBytesOfTheOriginal) {
  const TempFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    const std::string name = entry.path().filename().string();
    if (name == "README.md") continue;
    const Value value =
        load_params(name, name == "rows" ? VarKind::kSelectedRows : VarKind::kLodTensor);
    const Status status = save_param(folder / name, {name, &value}, {.sync = false});
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(bytes_of(folder / name), bytes_of(entry.path().string())) << name;
  }
}

TEST(Params, CombinedFileIsTheFilesInARow) {
  const TempFolder folder;
  std::vector<ParamSpec> specs;
  std::vector<Value> values;
  std::string expected;
  for (const char* const name : {"float32", "lod2", "rows", "uint8"}) {
    specs.push_back(
        spec_of(name, std::string(name) == "rows" ? VarKind::kSelectedRows : VarKind::kLodTensor));
    values.push_back(load_params(name, specs.back().kind));
    expected += bytes_of(std::string(kData) + name);
  }
  std::vector<NamedValue> named;
  for (size_t i = 0; i < values.size(); ++i) named.push_back({specs[i].name, &values[i]});
  ASSERT_TRUE(save_combined(folder / "all", named).ok());
  EXPECT_EQ(bytes_of(folder / "all"), expected);
  EXPECT_EQ(*combined_bytes(named), expected);

  const auto again = load_combined(ByteSource::of_memory(expected, "memory"), specs);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->size(), 4U);
  EXPECT_EQ(again->at("lod2").get_if<Tensor>()->lod(), values[1].get_if<Tensor>()->lod());
}

TEST(Params, EmptyListWritesNothing) {
  const TempFolder folder;
  EXPECT_TRUE(save_combined(folder / "all", {}).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "all"));
}

TEST(Params, SeparateFilesGoIntoSubFolders) {
  const TempFolder folder;
  const Value value = load_params("float32");
  const std::vector<NamedValue> named = {{"net/fc/w", &value}, {"b", &value}};
  ASSERT_TRUE(save_separate(folder.path() + "/new", named).ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(folder / "new/net/fc/w"));
  for (const int threads : {1, 3}) {
    const auto again =
        load_separate(folder / "new", {spec_of("b"), spec_of("net/fc/w")}, {.threads = threads});
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(again->at("net/fc/w").get_if<Tensor>()->data<float>()[5], 3.0F);
  }
}

// Values of random kinds, types, dims and LoD, smaller and larger than one read, survive.
TEST(Params, RandomValuesRoundTrip) {
  std::mt19937 random(7);
  const TempFolder folder;
  const DType dtypes[] = {DType::kInt16,    DType::kInt32,   DType::kInt64,     DType::kFloat16,
                          DType::kFloat32,  DType::kFloat64, DType::kUint8,     DType::kInt8,
                          DType::kBfloat16, DType::kSizeT,   DType::kComplex64, DType::kComplex128};
  std::vector<ParamSpec> specs;
  std::vector<Value> values(60);
  std::vector<NamedValue> named;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool sparse = random() % 4 == 0;
    Dims dims = {static_cast<int64_t>(random() % 50), static_cast<int64_t>(1 + random() % 300)};
    if (i == 30) dims = {3000, 700};  // more than one read
    Tensor tensor;
    ASSERT_TRUE(tensor.resize(dtypes[random() % std::size(dtypes)], dims).ok());
    for (int64_t k = 0; k < tensor.bytes(); ++k) tensor.raw()[k] = static_cast<std::byte>(random());
    specs.push_back(
        spec_of("v" + std::to_string(i), sparse ? VarKind::kSelectedRows : VarKind::kLodTensor));
    specs.back().dtype = tensor.dtype();
    if (sparse) {
      auto& rows = values[i].as<SelectedRows>();
      rows.height = 1000;
      for (int64_t k = 0; k < dims[0]; ++k) rows.rows.push_back(random() % 1000);
      rows.value = std::move(tensor);
    } else {
      if (random() % 2 == 0) tensor.set_lod(Lod({{0, dims[0] / 3, dims[0]}}));
      specs.back().dims = dims;
      values[i].as<Tensor>() = std::move(tensor);
    }
    named.push_back({specs.back().name, &values[i]});
  }
  ASSERT_TRUE(save_combined(folder / "all", named, {.sync = false}).ok());
  const std::string expected = *combined_bytes(named);
  EXPECT_EQ(bytes_of(folder / "all"), expected);
  for (const int threads : {1, 4}) {
    const auto source = ByteSource::open(folder / "all");
    const auto again = load_combined(*source, specs, {.threads = threads});
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    std::vector<NamedValue> read;
    for (const ParamSpec& spec : specs) read.push_back({spec.name, &again->at(spec.name)});
    EXPECT_EQ(*combined_bytes(read), expected);
  }
}

// The table of spec/distributed_io.md section 4, on a file of 4 x 3 floats.
class ParamsSlice : public ::testing::Test {
 protected:
  void SetUp() override {
    auto& tensor = value_.as<Tensor>();
    ASSERT_TRUE(tensor.resize(DType::kFloat32, {4, 3}).ok());
    for (int i = 0; i < 12; ++i) tensor.data<float>()[i] = static_cast<float>(i);
    bytes_ = *combined_bytes(NamedValue{"w", &value_});
    EXPECT_EQ(bytes_.size(), 74U);
  }
  StatusOr<Value> slice(int64_t seek, llvm::ArrayRef<int64_t> shape,
                        const LoadOptions& options = {}) {
    return load_param_slice(ByteSource::of_memory(bytes_, "w.file"), spec_of("w"), seek, shape,
                            options);
  }
  Value value_;
  std::string bytes_;
};

TEST_F(ParamsSlice, SeekCountsElements) {
  for (const int64_t seek : {0, 3, 6}) {
    const auto part = slice(seek, {2, 3});
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    EXPECT_THAT(part->get_if<Tensor>()->dims(), ElementsAre(2, 3));
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(part->get_if<Tensor>()->data<float>()[i], static_cast<float>(seek + i));
  }
}

TEST_F(ParamsSlice, RefusesPartsBeyondTheEnd) {
  for (const auto& [seek, rows] : {std::pair<int64_t, int64_t>{9, 2}, {12, 1}, {-1, 1}, {0, 5}}) {
    const auto part = slice(seek, {rows, 3});
    ASSERT_FALSE(part.ok()) << seek;
    EXPECT_THAT(part.status().to_string(), HasSubstr("'w'"));
    EXPECT_THAT(part.status().message(), HasSubstr("expected a part of the 12 elements"));
  }
  EXPECT_FALSE(slice(0, {int64_t{1} << 40, int64_t{1} << 40}).ok());
  EXPECT_FALSE(slice(0, {-1, 3}).ok());
}

TEST_F(ParamsSlice, ConvertsToFloat16) {
  const auto part = slice(6, {6}, {.as_float16 = true});
  ASSERT_TRUE(part.ok());
  ASSERT_EQ(part->get_if<Tensor>()->dtype(), DType::kFloat16);
  EXPECT_EQ(static_cast<float>(part->get_if<Tensor>()->data<Float16>()[5]), 11.0F);
}

TEST(Params, ExistingFilesStayWithoutReplace) {
  const TempFolder folder;
  put_file(folder / "w", "old");
  const Value value = load_params("float32");
  const Status refused = save_param(folder / "w", {"w", &value});
  EXPECT_EQ(refused.code(), StatusCode::kUsage);
  EXPECT_EQ(bytes_of(folder / "w"), "old");
  EXPECT_TRUE(save_param(folder / "w", {"w", &value}, {.replace = Replace::kYes}).ok());
  EXPECT_EQ(bytes_of(folder / "w"), bytes_of(std::string(kData) + "float32"));
  // no temporary files are left
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Params, SaveNamesWhatIsWrong) {
  const TempFolder folder;
  const Value nothing;
  const Status status = save_param(folder / "w", {"w", &nothing});
  EXPECT_THAT(status.to_string(), HasSubstr("'w': expected a tensor or selected rows with data"));
  const Value value = load_params("float32");
  EXPECT_EQ(save_param(folder / "no/w", {"w", &value}).code(), StatusCode::kNotFound);
  EXPECT_EQ(save_param(folder.path(), {"w", &value}).code(), StatusCode::kInvalidData);
  EXPECT_EQ(save_separate(folder.path(), NamedValue{"../w", &value}).code(),
            StatusCode::kInvalidData);
}

}  // namespace
}  // namespace millrace::io
