// migrate as a process: the file it writes, and its errors with their exit codes.

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/temp_folder.h"
#include "tests/support/process.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFitALine = "tests/data/models/fit_a_line_2018";

struct MigrateResult {
  int code;
  std::string text;
};

MigrateResult migrate_tool(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), spawn::tool("migrate"));
  spawn::Process process(arguments);
  const int code = process.wait(60000);
  return {code, process.output()};
}

TEST(Migrate, WritesAModel) {
  const millrace::testing::TempFolder folder;
  const std::string out = folder / "model.onnx";
  const MigrateResult done = migrate_tool({"--to", "onnx", kFitALine, "-o", out});
  EXPECT_EQ(done.code, 0) << done.text;
  EXPECT_GT(std::filesystem::file_size(out), 100U);
  const MigrateResult again = migrate_tool({"--to", "onnx", kFitALine, "-o", out});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.text, HasSubstr("--force"));
}

TEST(Migrate, WritesAPirModelAsTwoFiles) {
  const millrace::testing::TempFolder folder;
  const std::string prefix = folder / "model";
  const MigrateResult done = migrate_tool({"--to", "pir", kFitALine, "-o", prefix});
  EXPECT_EQ(done.code, 0) << done.text;
  EXPECT_GT(std::filesystem::file_size(prefix + ".json"), 100U);
  EXPECT_GT(std::filesystem::file_size(prefix + ".pdiparams"), 50U);
  const MigrateResult again = migrate_tool({"--to", "pir", kFitALine, "-o", prefix});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.text, HasSubstr("model.pdiparams"));
  EXPECT_EQ(migrate_tool({"--to", "pir", kFitALine, "-o", prefix, "--force"}).code, 0);
  const MigrateResult stream = migrate_tool({"--to", "pir", kFitALine, "-o", "-"});
  EXPECT_EQ(stream.code, 2);
  EXPECT_THAT(stream.text, HasSubstr("--to pir writes two files: expected their prefix"));
  const MigrateResult opset =
      migrate_tool({"--to", "pir", kFitALine, "-o", prefix, "--opset", "17"});
  EXPECT_EQ(opset.code, 2);
  EXPECT_THAT(opset.text, HasSubstr("--opset belongs to --to onnx"));
}

TEST(Migrate, ReadsAnOnnxModel) {
  const millrace::testing::TempFolder folder;
  const std::string onnx = folder / "in/model.onnx";
  const std::string out = folder / "out";
  std::filesystem::create_directory(folder / "in");
  ASSERT_EQ(migrate_tool({"--to", "onnx", kFitALine, "-o", onnx}).code, 0);
  const MigrateResult done = migrate_tool({"--to", "program", onnx, "-o", out});
  EXPECT_EQ(done.code, 0) << done.text;
  EXPECT_GT(std::filesystem::file_size(out + "/__params__"), 50U);
  EXPECT_THAT(migrate_tool({out}).text, HasSubstr("runs yes, onnx yes"));
  EXPECT_EQ(migrate_tool({"--to", "program", onnx, "-o", out}).code, 2);
  EXPECT_EQ(migrate_tool({"--to", "pir", onnx, "-o", folder / "pir"}).code, 0);
  EXPECT_THAT(migrate_tool({folder / "in"}).text, HasSubstr("runs yes"));
  const MigrateResult all =
      migrate_tool({"--to", "program", "--all", folder / "in", "-o", folder / "all"});
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_TRUE(std::filesystem::exists(folder / "all/model/__model__"));
}

TEST(Migrate, RefusesWhatIsNoOnnxModel) {
  const millrace::testing::TempFolder folder;
  millrace::testing::put_file(folder / "broken.onnx", "text");
  const MigrateResult broken =
      migrate_tool({"--to", "program", folder / "broken.onnx", "-o", folder / "out"});
  EXPECT_EQ(broken.code, 3);
  EXPECT_THAT(broken.text, HasSubstr("broken.onnx: the bytes are no ONNX model"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  EXPECT_THAT(migrate_tool({folder / "broken.onnx"}).text, HasSubstr("no ONNX model"));
  EXPECT_THAT(migrate_tool({"--to", "program", kFitALine, "-o", folder / "out"}).text,
              HasSubstr("--to program: expected an ONNX file or a PIR program"));
  EXPECT_THAT(migrate_tool({"--to", "onnx", folder / "broken.onnx", "-o", "-"}).text,
              HasSubstr("--to onnx: expected the folder of a program"));
  EXPECT_THAT(migrate_tool({"--to", "program", folder / "broken.onnx", "-o", "-"}).text,
              HasSubstr("--to program writes two files"));
  const MigrateResult wrong = migrate_tool({"--to", "onxx", kFitALine, "-o", "-"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.text, HasSubstr("expected onnx, pir or program, found 'onxx'"));
}

TEST(Migrate, ReadsPirProgramsAgain) {
  const millrace::testing::TempFolder folder;
  ASSERT_EQ(migrate_tool({"--to", "pir", kFitALine, "-o", folder / "m"}).code, 0);
  const std::string json = folder / "m.json";
  const MigrateResult done = migrate_tool({"--to", "program", json, "-o", folder / "again"});
  EXPECT_EQ(done.code, 0) << done.text;
  EXPECT_TRUE(std::filesystem::exists(folder / "again/__params__"));
  std::filesystem::create_directory(folder / "o");
  EXPECT_EQ(migrate_tool({"--to", "onnx", json, "-o", folder / "o/m.onnx"}).code, 0);
  EXPECT_THAT(migrate_tool({folder / ""}).text, HasSubstr("m.json: inference model, release PIR"));
  const MigrateResult all =
      migrate_tool({"--to", "program", "--all", folder / "", "-o", folder / "all"});
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_TRUE(std::filesystem::exists(folder / "all/m/__model__"));
  EXPECT_THAT(migrate_tool({"--to", "pir", json, "-o", folder / "n"}).text,
              HasSubstr("expected the folder of a program, or another format"));
  EXPECT_EQ(
      migrate_tool({"--to", "program", json, "--params-file", "absent", "-o", folder / "n"}).code,
      3);
  std::filesystem::rename(folder / "m.pdiparams", folder / "weights");
  EXPECT_THAT(migrate_tool({"--to", "program", json, "-o", folder / "n"}).text,
              HasSubstr("m.pdiparams"));
  EXPECT_EQ(
      migrate_tool({"--to", "program", json, "--params-file", "weights", "-o", folder / "n"}).code,
      0);
  EXPECT_THAT(migrate_tool({"--to", "program", folder / "o/m.onnx", "--params-file", "weights",
                            "-o", folder / "o"})
                  .text,
              HasSubstr("--params-file: an ONNX file names its files itself"));
}

TEST(Migrate, WrongArgumentsAreUsageErrors) {
  EXPECT_THAT(migrate_tool({"--to", "onnx", kFitALine}).text, HasSubstr("expected --output"));
  const MigrateResult dims =
      migrate_tool({"--to", "onnx", kFitALine, "-o", "-", "--input-dims", "x=3,many"});
  EXPECT_EQ(dims.code, 2);
  EXPECT_THAT(dims.text, HasSubstr("--input-dims: expected NAME=D,D,..."));
  const MigrateResult opset = migrate_tool({"--to", "onnx", kFitALine, "-o", "-", "--opset", "9"});
  EXPECT_EQ(opset.code, 3);
  EXPECT_THAT(opset.text, HasSubstr("opset 9: expected 17 to 21"));
  const MigrateResult missing =
      migrate_tool({"--to", "onnx", kFitALine, "-o", "-", "--params-file", "absent"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.text, HasSubstr("absent"));
}

// Programs of training need no parameters: a startup program sets them.
TEST(Migrate, WritesProgramsOfTrainingWithoutParameters) {
  const millrace::testing::TempFolder folder;
  const std::string startup = "tests/data/programs/paddlerec_startup.pb";
  const MigrateResult done = migrate_tool({"--to", "pir", startup, "-o", folder / "s"});
  EXPECT_EQ(done.code, 0) << done.text;
  EXPECT_TRUE(std::filesystem::exists(folder / "s.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "s.pdiparams"));
  EXPECT_EQ(migrate_tool({"--to", "onnx", startup, "-o", folder / "s.onnx"}).code, 7);
  const MigrateResult absent =
      migrate_tool({"--to", "pir", startup, "--fetch", "nowhere", "-o", folder / "t"});
  EXPECT_EQ(absent.code, 3);
  EXPECT_THAT(absent.text, HasSubstr("the fetched var 'nowhere' has no value"));
  EXPECT_THAT(migrate_tool({"--to", "onnx", kFitALine, "--fetch", "x", "-o", "y"}).text,
              HasSubstr("--fetch belongs to --to pir, for one program"));
  EXPECT_THAT(migrate_tool({kFitALine, "--fetch", "x"}).text,
              HasSubstr("--fetch: expected --to pir"));
  std::filesystem::copy_file(startup, folder / "startup_program");
  const MigrateResult all =
      migrate_tool({"--to", "pir", "--all", folder / "", "-o", folder / "out"});
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_TRUE(std::filesystem::exists(folder / "out/startup_program.json"));
  std::filesystem::remove_all(folder / "out");
  std::filesystem::remove(folder / "s.json");
  EXPECT_EQ(migrate_tool({"--to", "onnx", "--all", folder / "", "-o", folder / "no"}).code, 3);
}

TEST(Migrate, ReportsOnAFolder) {
  const MigrateResult text = migrate_tool({kFitALine});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.text, HasSubstr("__model__: inference model"));
  EXPECT_THAT(text.text, HasSubstr("runs yes, onnx yes"));
  EXPECT_THAT(migrate_tool({kFitALine, "--json"}).text, HasSubstr("\"answer\": \"yes\""));
  EXPECT_THAT(migrate_tool({kFitALine, "--format", "html"}).text, HasSubstr("<h1>Programs in"));
  const MigrateResult wrong = migrate_tool({kFitALine, "--format", "pdf"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.text, HasSubstr("--format: expected text, json or html"));
  const millrace::testing::TempFolder empty;
  const MigrateResult none = migrate_tool({empty / ""});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.text, HasSubstr("no program files below"));
}

TEST(Migrate, AReportSaysWhichParametersAreMissing) {
  const millrace::testing::TempFolder folder;
  std::filesystem::copy(kFitALine, folder / "model");
  std::filesystem::remove(folder / "model/fc_0.w_0");
  const MigrateResult report = migrate_tool({folder / "model"});
  EXPECT_EQ(report.code, 0);
  EXPECT_THAT(report.text, HasSubstr("2 not read (not next to the program)"));
}

TEST(Migrate, ConvertsAllModelsOfAFolder) {
  const millrace::testing::TempFolder folder;
  std::filesystem::copy("tests/data/models", folder / "in",
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy_file("tests/data/programs/custom_gap.pb", folder / "in/custom.pb");
  millrace::testing::put_file(folder / "in/broken.pb", "\x0a\xff");
  const MigrateResult done =
      migrate_tool({"--to", "onnx", "--all", folder / "in", "-o", folder / "out"});
  EXPECT_EQ(done.code, 1) << done.text;
  EXPECT_GT(std::filesystem::file_size(folder / "out/fit_a_line_2018.onnx"), 100U);
  EXPECT_FALSE(std::filesystem::exists(folder / "out/custom.onnx"));
  EXPECT_THAT(done.text, HasSubstr("in/conv2d_0.b_0"));
  EXPECT_THAT(done.text, HasSubstr("2 refused"));
  std::filesystem::copy_file("tests/data/programs/fit_a_line_2018.pb",
                             folder / "in/fit_a_line_2018.pb");
  const MigrateResult twice =
      migrate_tool({"--to", "onnx", "--all", folder / "in", "-o", folder / "again"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.text, HasSubstr("would have the same output"));
  EXPECT_THAT(migrate_tool({kFitALine, "--params-file", "p"}).text,
              HasSubstr("--params-file: expected --to"));
  const MigrateResult wrong = migrate_tool({"--all", folder / "in", "-o", folder / "out"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.text, HasSubstr("--all: expected --to"));
  EXPECT_THAT(migrate_tool({"--to", "onnx", "--json", kFitALine, "-o", "-"}).text,
              HasSubstr("--format and --json are for reports, without --to"));
}

}  // namespace
}  // namespace millrace::tools
