// A var that is written in chunks produces the same file as in one piece; chunks that do not add up
// to the var leave no file.
#include "io/param_writer.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::counting;
using testing::counting_part;
using ::testing::HasSubstr;
using testing::outcome;
using testing::TempFolder;

const Dims kParamWriterDims = {5, 3};

Status write(const std::string& path, const std::vector<int64_t>& rows,
             const SaveOptions& options = {}) {
  MILLRACE_ASSIGN_OR_RETURN(ParamWriter file,
                            ParamWriter::create(path, DType::kFloat32, kParamWriterDims, options));
  int64_t at = 0;
  for (const int64_t count : rows) {
    const Value part = counting_part({100, 3}, {{at, 0}, {count, 3}});
    MILLRACE_RETURN_IF_ERROR(file.append(*part.get_if<Tensor>()));
    at += count;
  }
  return file.commit();
}

TEST(ParamWriter, PiecesMakeTheFileOfTheWhole) {
  const TempFolder folder;
  const Value whole = counting(kParamWriterDims);
  ASSERT_EQ(outcome(save_param(folder / "whole", {"w", &whole})), "ok");
  int number = 0;
  for (const std::vector<int64_t>& rows :
       std::vector<std::vector<int64_t>>{{5}, {2, 3}, {1, 1, 1, 1, 1}, {0, 4, 0, 1}}) {
    const std::string path = folder / std::to_string(number++);
    ASSERT_EQ(outcome(write(path, rows)), "ok");
    EXPECT_EQ(testing::bytes_of(path), testing::bytes_of(folder / "whole"));
  }
}

TEST(ParamWriter, WhatDoesNotMakeUpTheVarLeavesNoFile) {
  const TempFolder folder;
  EXPECT_THAT(outcome(write(folder / "w", {2, 2})), HasSubstr("expected 15 elements, found 12"));
  EXPECT_THAT(outcome(write(folder / "w", {4, 2})),
              HasSubstr("element 12 of 15: expected a piece of f32 of at most 3 elements"));
  {
    auto file = ParamWriter::create(folder / "w", DType::kInt64, kParamWriterDims);
    ASSERT_EQ(outcome(file), "ok");
    const Value floats = counting({1, 3});
    EXPECT_THAT(outcome(file->append(*floats.get_if<Tensor>())), HasSubstr("a piece of i64"));
    EXPECT_THAT(outcome(file->append(Tensor())), HasSubstr("expected a piece"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(outcome(ParamWriter::create(folder / "w", DType::kFloat32, {int64_t{1} << 62, 4})),
              HasSubstr("cannot be saved"));
}

TEST(ParamWriter, ReplacesOnlyIfAsked) {
  const TempFolder folder;
  ASSERT_EQ(outcome(write(folder / "w", {5})), "ok");
  EXPECT_EQ(write(folder / "w", {5}).code(), StatusCode::kUsage);
  EXPECT_EQ(outcome(write(folder / "w", {3, 2}, {.replace = Replace::kYes})), "ok");
}

}  // namespace
}  // namespace millrace::io
