// Wrong input and options that would change results, or lose them, without a message.

#include <string>

#include <gmock/gmock.h>

#include "tests/tools/program_tools.h"

namespace millrace::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kServerProgram = "tests/data/programs/dist_table_pserver.pb";

// A program of an old release, which does not mark what is fed.
constexpr const char* kOldStep =
    "# millrace program 1\nblock 0 {\n  persist w: f32(2)\n  persist v: f32(2)\n"
    "  var x: f32(-1, 2)\n  var n: i64(-1)\n  var y: f32(-1, 2)\n  var i: i64(-1)\n"
    "  var z: f32(-1, 2)\n  elementwise_mul X=x Y=w -> Out=y\n  elementwise_add X=y Y=v -> Out=z\n"
    "  scale X=n -> Out=i {scale: 2.0}\n}\n";
constexpr const char* kOldStartup =
    "# millrace program 1\nblock 0 {\n  persist w: f32(2)\n  persist v: f32(2)\n"
    "  fill_constant -> Out=w {shape: [2l], value: 0.5, dtype: 5}\n"
    "  fill_constant -> Out=v {shape: [2l], value: 0.25, dtype: 5}\n}\n";

TEST_F(ProgramTools, ResultsOfEveryTypeArePrinted) {
  const std::string step = "run-program --program " + write("p.prog", kOldStep) + " --startup " +
                           write("s.prog", kOldStartup) + " --feed x=1x2xf32=zeros";
  EXPECT_THAT(run(step + " --feed n=3xi32=zeros --fetch i").out, HasSubstr("\n  [0, 0, 0]\n"));
  const std::string other = step + " --feed n=1xi64=zeros --fetch z";
  EXPECT_THAT(run(other).out, HasSubstr("z: f32 [1, 2]\n  [0.25, 0.25]\n"));
  EXPECT_THAT(run(other + " --precision f64").out, HasSubstr("z: f64 [1, 2]\n  [0.25, 0.25]\n"));
}

// Integers for floats made elementwise ops compute in integers.
TEST_F(ProgramTools, FeedsOfAnotherTypeAreRefused) {
  const std::string step = "run-program --program " + write("p.prog", kOldStep) + " --startup " +
                           write("s.prog", kOldStartup) +
                           " --fetch z --feed n=1xi64=zeros --feed x=";
  for (const std::string type : {"i64", "f64", "u8"}) {
    const ToolEnd refused = run(step + "1x2x" + type + "=zeros");
    EXPECT_EQ(refused.code, 3) << refused.out;
    EXPECT_THAT(refused.out, HasSubstr("'x': feed: expected f32, found " + type + " [1, 2]"));
  }
  const ToolEnd named = run(step + "zeros --feed " + std::string(300, 'q') + "=x.npy");
  EXPECT_EQ(named.code, 3) << "a long name is no defect of the program";
  EXPECT_THAT(named.out, HasSubstr("feed: the program has no such var"));
}

// A misspelled name in the file, and the run starts from other values.
TEST_F(ProgramTools, ParametersThatAFileLacksAreNamed) {
  const std::string step = "run-program --program " + write("p.prog", kOldStep) +
                           " --feed x=1x2xf32=zeros --feed n=1xi64=zeros --fetch z ";
  const std::string startup = "--startup " + write("s.prog", kOldStartup);
  ASSERT_EQ(run(step + startup + " -q --save-persistables " + path("all.npz")).code, 0);
  ASSERT_EQ(
      run("run-program --program " + path("s.prog") + " --fetch w -q -o " + path("w.npz")).code, 0);
  const std::string warning =
      "w.npz has no values for these vars, which keep those of the startup "
      "program: v\n";
  EXPECT_THAT(run(step + startup + " --params " + path("w.npz")).out, HasSubstr(warning));
  EXPECT_THAT(run(step + startup + " --params " + path("all.npz")).out,
              Not(HasSubstr("has no values")));
  EXPECT_EQ(run(step + " --params " + path("w.npz")).code, 4) << "v has no value";
}

TEST_F(ProgramTools, TrainingNeedsAnOptimizer) {
  const std::string minimize =
      "transpile-program --program tests/data/frontend/fit_a_line.main.pb --startup "
      "tests/data/frontend/fit_a_line.startup.pb --minimize " +
      write("min.json", R"({"losses": ["mean_0.tmp_0"]})") + " -o " + path("out");
  const ToolEnd refused = run(minimize);
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.out, HasSubstr("min.json: 'optimizer': expected a list with an optimizer for "
                                     "each loss, found none"));
  EXPECT_EQ(run(minimize + " --backward-only").code, 0);
}

TEST_F(ProgramTools, ProgramsOfOtherRolesAreRefused) {
  const auto refused = [&](const std::string& arguments) {
    const ToolEnd result = run("run-program " + arguments);
    EXPECT_NE(result.code, 0) << arguments;
    return result.out;
  };
  const std::string trainer = "--role trainer --trainer-id 0 --deadline-ms 500 --program ";
  EXPECT_THAT(refused(trainer + "tests/data/frontend/fit_a_line.main.pb"),
              HasSubstr("the program calls no servers: expected that of a trainer in a job"));
  EXPECT_THAT(refused(trainer + kServerProgram),
              HasSubstr("expected the program of a trainer, found that of a server"));
  EXPECT_THAT(refused(std::string("--program ") + kServerProgram),
              HasSubstr("hint: only processes of a job run it"));
  EXPECT_THAT(refused("--cluster inproc --role trainer --transpiled x"),
              HasSubstr("expected only one of --cluster and --role"));
}

// Hours of training would be lost for an option.
TEST_F(ProgramTools, WhatCannotBeSavedIsNoticedBeforeTheFirstStep) {
  const std::string train =
      "run-program --program tests/data/fit_a_line/main.pb --startup "
      "tests/data/fit_a_line/startup.pb --feed x=4x13xf32=random:1 --feed y=4x1xf32=random:2 "
      "--print-period 1 --steps 2 ";
  const std::string old = write("old", "");
  const std::string model = "--save-model " + path("model") + " --model-feeds x ";
  for (const std::string& options :
       {"-o " + old, "--save-persistables " + old, "--save-params " + old, "--profile " + old,
        "--fetch mean_0.tmp_0 --curve " + old, "-o " + path("none/o.npz"),
        "--save-persistables " + path(""), model, model + "--model-fetches nosuch",
        "--save-model " + path("model") + " --model-feeds y --model-fetches fc_0.tmp_1"}) {
    const ToolEnd refused = run(train + options);
    EXPECT_NE(refused.code, 0) << options;
    EXPECT_THAT(refused.out, HasSubstr("error: ")) << options;
    EXPECT_THAT(refused.out, Not(HasSubstr("step 1"))) << options;
  }
  const std::string saved =
      train + model + "--model-fetches fc_0.tmp_1 --save-params " + path("p/");
  const ToolEnd good = run(saved);
  EXPECT_EQ(good.code, 0) << good.out;
  EXPECT_THAT(good.out, HasSubstr("step 2"));
  EXPECT_THAT(run(saved).out, AllOf(HasSubstr("exists already"), Not(HasSubstr("step 1"))));
  EXPECT_EQ(run(saved + " --force").code, 0);
  EXPECT_EQ(run(train + "-o /dev/null").code, 0);
}

}  // namespace
}  // namespace millrace::tools
