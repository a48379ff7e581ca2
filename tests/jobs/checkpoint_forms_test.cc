// Values of a source in every form that the library writes, and what is refused without a file.

#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "io/npz.h"
#include "jobs/checkpoint/compare.h"
#include "jobs/checkpoint/convert.h"
#include "jobs/checkpoint/verify.h"

namespace millrace::jobs {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CheckpointForms : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("millrace_forms_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    std::map<std::string, Value> values;
    Tensor& tensor = values["w"].as<Tensor>();
    tensor = Tensor::create(DType::kFloat32, {2, 3}).value();
    for (int i = 0; i < 6; ++i) tensor.data<float>()[i] = static_cast<float>(i);
    const std::string bytes = io::npz_bytes(values).value();
    ASSERT_TRUE(write_file_atomically(path("a.npz"), bytes).ok());
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  fs::path folder_;
  SourceOptions read_;
  WriteOptions write_;
};

TEST_F(CheckpointForms, EachFormHoldsTheSameValues) {
  const auto source = open_source(read_, path("a.npz"));
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  EXPECT_EQ((*source)->form(), "npz");
  uint64_t bytes = 0;
  write_.progress = [&](uint64_t more) { bytes += more; };
  for (const ValuesForm form : {ValuesForm::kCheckpoint, ValuesForm::kSafetensors, ValuesForm::kNpz,
                                ValuesForm::kFluidSeparate}) {
    const std::string name(values_form_name(form));
    const std::string output = path("out." + name);
    const Status status = convert_values(**source, {"w"}, form, output, write_);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const std::string& file : converted_files(form, output, {"w"}))
      EXPECT_TRUE(fs::exists(file)) << file;
    const auto written = open_source(read_, output);
    ASSERT_TRUE(written.ok()) << written.status().to_string();
    EXPECT_EQ((*written)->form(), name);
    const auto found = compare_sources(**source, **written, {});
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->compared, 1U) << name;
    EXPECT_THAT(found->differences, IsEmpty()) << name;
  }
  EXPECT_GE(bytes, 4U * 24U);
}

TEST_F(CheckpointForms, AnInfinityDiffersFromAFiniteNumberUnderEveryTolerance) {
  std::map<std::string, Value> values;
  Tensor& tensor = values["w"].as<Tensor>();
  tensor = Tensor::create(DType::kFloat32, {2, 3}).value();
  for (int i = 0; i < 6; ++i) tensor.data<float>()[i] = static_cast<float>(i);
  tensor.data<float>()[4] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(write_file_atomically(path("b.npz"), io::npz_bytes(values).value()).ok());
  const auto finite = open_source(read_, path("a.npz"));
  const auto infinite = open_source(read_, path("b.npz"));
  CompareOptions loose;
  loose.tolerance = {0.5, 0.5};
  EXPECT_THAT(compare_sources(**infinite, **infinite, loose)->differences, IsEmpty());
  for (const auto& [a, b] : {std::pair(&finite, &infinite), {&infinite, &finite}}) {
    const auto found = compare_sources(***a, ***b, loose);
    ASSERT_EQ(found->differences.size(), 1U);
    EXPECT_EQ(found->differences[0].count, 1);
    EXPECT_EQ(found->differences[0].at, 4);
  }
}

TEST_F(CheckpointForms, VerifyReportsDamage) {
  const auto source = open_source(read_, path("a.npz"));
  ASSERT_TRUE(convert_values(**source, {"w"}, ValuesForm::kCheckpoint, path("c"), write_).ok());
  const VerifyProgress progress = [](const std::string& /*folder*/, uint64_t /*bytes*/) {
    return [](uint64_t /*more*/) {};
  };
  VerifyOutcome good;
  ASSERT_TRUE(verify_path(read_, path("c"), nullptr, progress, good).ok());
  EXPECT_THAT(good.looked_at, ElementsAre(path("c")));
  EXPECT_THAT(good.wrong, IsEmpty());
  for (const auto& file : fs::directory_iterator(path("c"))) {
    if (file.path().filename() != "manifest.json") fs::resize_file(file.path(), 1);
  }
  VerifyOutcome damaged;
  ASSERT_TRUE(verify_path(read_, path("c"), nullptr, progress, damaged).ok());
  EXPECT_FALSE(damaged.wrong.empty());
  EXPECT_EQ(verify_path(read_, path("gone"), nullptr, progress, damaged).code(),
            StatusCode::kNotFound);
}

TEST_F(CheckpointForms, ErrorsNameFieldsOfTheOptions) {
  ASSERT_TRUE(write_file_atomically(path("params"), "abc").ok());
  EXPECT_EQ(open_source(read_, path("params")).status().hint(),
            "give the program that it belongs to with options.program");
  read_.from = ValuesForm::kOriginal;
  const Status refused = open_source(read_, path("params")).status();
  EXPECT_EQ(refused.code(), StatusCode::kUsage);
  EXPECT_EQ(refused.hint(), "set options.allow_original");
  write_.proceed = [] { return Status(StatusCode::kResource, "stopped"); };
  read_.from = ValuesForm::kAuto;
  const auto source = open_source(read_, path("a.npz"));
  EXPECT_EQ(convert_values(**source, {"w"}, ValuesForm::kNpz, path("b.npz"), write_).message(),
            "stopped");
  EXPECT_FALSE(fs::exists(path("b.npz")));
}

}  // namespace
}  // namespace millrace::jobs
