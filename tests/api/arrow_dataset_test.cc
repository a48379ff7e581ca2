// Training from Arrow streams by the installed library, compared with the same examples in a file.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/dataset.h"
#include "api/executor.h"
#include "tests/api/nets.h"
#include "tests/io/arrow_columns.h"
#include "tests/io/temp_folder.h"

namespace millrace::api {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::TestColumn;
using testing::TestStream;

constexpr int kArrowRows = 30;

float arrow_x(int row, int column) {
  return static_cast<float>((row * 3 + column) % 7) * 0.25F - 0.5F;
}

// The examples: x is a list of three floats, t a number. Rows `begin` to `end`.
std::vector<TestColumn> arrow_columns(int begin, int end) {
  std::vector<float> x;
  std::vector<double> t;
  for (int row = begin; row < end; ++row) {
    for (int c = 0; c < 3; ++c) x.push_back(arrow_x(row, c));
    t.push_back(row % 3 * 0.5);
  }
  const auto rows = static_cast<int64_t>(t.size());
  return {{"x", "+w:3", rows, {std::nullopt}, {{"", "f", 3 * rows, {std::nullopt, bytes_of(x)}}}},
          {"t", "g", rows, {std::nullopt, bytes_of(t)}}};
}

class ApiArrow : public ::testing::Test {
 protected:
  ApiArrow() {
    options_.arrow = {{"table", stream_.opener()}};
    options_.use_vars = {"x", "t"};
    options_.batch_size = 8;
    std::string text;
    for (int row = 0; row < kArrowRows; ++row)
      text += fmt::format("3 {} {} {} 1 {}\n", arrow_x(row, 0), arrow_x(row, 1), arrow_x(row, 2),
                          row % 3 * 0.5);
    testing::put_file(folder_ / "part-0", text);
  }
  [[nodiscard]] Status refused() const {
    return Dataset::create(net_.net.main(), options_).status();
  }
  // The mean losses of two epochs.
  std::vector<double> train(Dataset& data) {
    Executor executor = value_of(Executor::create({.threads = 1}));
    Scope scope;
    check(executor.run(net_.net.startup(), scope).status());
    const std::string loss = net_.loss.name();
    std::vector<double> means;
    for (int epoch = 0; epoch < 2; ++epoch) {
      if (options_.in_memory) check(data.local_shuffle());
      const EpochResult result =
          value_of(executor.train_from_dataset(net_.net.main(), scope, data, {.fetches = {loss}}));
      EXPECT_EQ(result.examples, kArrowRows);
      means.push_back(result.means.at(loss));
    }
    return means;
  }

  SmallNet net_;
  testing::TempFolder folder_;
  TestStream stream_{{arrow_columns(0, 11), arrow_columns(11, kArrowRows)}, {11, kArrowRows - 11}};
  DatasetOptions options_;
};

TEST_F(ApiArrow, TrainsAsFromAFile) {
  DatasetOptions text = options_;
  text.arrow = {};
  text.files = {folder_ / "part-0"};
  for (const bool in_memory : {false, true}) {
    options_.in_memory = text.in_memory = in_memory;
    Dataset from_text = value_of(Dataset::create(net_.net.main(), text));
    Dataset from_stream = value_of(Dataset::create(net_.net.main(), options_));
    if (in_memory) check(from_text.load_into_memory());
    if (in_memory) check(from_stream.load_into_memory());
    EXPECT_EQ(train(from_text), train(from_stream)) << in_memory;
    EXPECT_EQ(stream_.open(), 0);
  }
}

// Two trainers together read every row once.
TEST_F(ApiArrow, TrainersDivideTheRows) {
  options_.in_memory = true;
  options_.divide = DatasetDivide::kExamples;
  options_.trainers = 2;
  int64_t rows = 0;
  for (options_.trainer = 0; options_.trainer < 2; ++options_.trainer) {
    Dataset data = value_of(Dataset::create(net_.net.main(), options_));
    check(data.load_into_memory());
    EXPECT_EQ(data.examples_in_memory(), kArrowRows / 2);
    rows += data.examples_in_memory();
  }
  EXPECT_EQ(rows, kArrowRows);
}

// The second pass over what can be read once must not be an epoch without examples.
TEST_F(ApiArrow, AStreamThatIsEmptyInTheSecondPassIsAnError) {
  TestStream empty({arrow_columns(0, 0)}, {0});
  int passes = 0;
  options_.arrow = {
      {"table", stream_.opener()},
      {"once", [&] { return passes++ == 0 ? stream_.opener()() : empty.opener()(); }}};
  Dataset data = value_of(Dataset::create(net_.net.main(), options_));
  Executor executor = value_of(Executor::create({.threads = 1}));
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  EXPECT_EQ(value_of(executor.train_from_dataset(net_.net.main(), scope, data, {})).examples,
            2 * kArrowRows);
  const Status status = executor.train_from_dataset(net_.net.main(), scope, data, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.to_string(), HasSubstr("once"));
  EXPECT_THAT(status.message(), HasSubstr("expected 30 rows as in the first pass, found 0"));
}

TEST_F(ApiArrow, SourcesAreReplaced) {
  options_.in_memory = true;
  Dataset data = value_of(Dataset::create(net_.net.main(), options_));
  TestStream other({arrow_columns(0, 5)}, {5});
  check(data.set_arrow({{"other", other.opener()}}));
  check(data.load_into_memory());
  EXPECT_EQ(data.examples_in_memory(), 5);
  EXPECT_THAT(data.set_files({folder_ / "part-0"}).message(), HasSubstr("expected set_arrow"));
  EXPECT_THAT(data.set_arrow({}).message(), HasSubstr("expected at least one source"));
}

TEST_F(ApiArrow, OptionsThatMakeNoSense) {
  options_.pipe_command = "awk";
  EXPECT_THAT(refused().message(), HasSubstr("pipe_command has no effect on options.arrow"));
  options_.pipe_command = "";
  options_.files = {folder_ / "part-0"};
  EXPECT_THAT(refused().message(), HasSubstr("expected one of options.files and options.arrow"));
  options_.files = {};
  options_.arrow.push_back(options_.arrow.front());
  EXPECT_THAT(refused().message(), HasSubstr("two sources have the name 'table'"));
  options_.arrow = {{"empty", {}}};
  EXPECT_THAT(refused().message(), HasSubstr("'empty' has no function that opens it"));
  options_.arrow = {{"table", stream_.opener()}};
  options_.use_vars = {};
  options_.slots_text = R"(["x", "t"])";
  EXPECT_THAT(refused().message(), HasSubstr("expected a description with \"format\": \"arrow\""));
  options_.slots_text = R"({"format": "arrow", "slots": ["x", "t"]})";
  EXPECT_TRUE(refused().ok());
  options_.arrow = {};
  options_.files = {folder_ / "part-0"};
  EXPECT_THAT(refused().message(), HasSubstr("is for streams"));
}

TEST_F(ApiArrow, ParquetIsReadInPythonOnly) {
  testing::put_file(folder_ / "x.parquet", "PAR1\x15\x04\x15");
  options_.arrow = {};
  options_.files = {folder_ / "x.parquet"};
  options_.in_memory = true;
  Dataset data = value_of(Dataset::create(net_.net.main(), options_));
  const Status status = data.load_into_memory();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(), HasSubstr("x.parquet"));
  EXPECT_THAT(status.message(), HasSubstr("a Parquet file, which only the Python package reads"));
}

}  // namespace
}  // namespace millrace::api
