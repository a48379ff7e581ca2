// The conventions that every command-line tool shares.

#include "tools/common/tool.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "framework/base/errors.h"
#include "tools/common/numbers.h"
#include "tools/common/switch.h"

namespace millrace::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

struct ToolTestResult {
  int code;
  std::string out;
  std::string err;
};

class ToolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("millrace_tool_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }

  // Runs a tool with one option of each kind; the body fails with the given status.
  ToolTestResult run(std::vector<std::string> arguments, Status status = Ok(), int code = kDone) {
    Tool tool({.name = "toy-tool",
               .purpose = "does nothing",
               .examples = {"toy-tool --trainers 4 model"},
               .exit_codes = {{1, "the answer is no"}},
               .notes = {}});
    tool.app().add_option("INPUT", input_, "what to read");
    tool.app().add_option("--trainers", trainers_, "number of trainers")->group("Cluster");
    tool.app().add_option("--pservers", pservers_, "end points")->group("Cluster");
    half_async_ = false;
    sync_mode_ = true;
    tool.app().add_option("--count", count_, "how many")->check(whole_number(-5, 100));
    tool.app().add_option("--ratio", ratio_, "how much")->check(real_number(0, 1));
    add_switch(tool.app(), "--half-async", half_async_, "a barrier each step");
    add_switch(tool.app(), "--sync-mode", sync_mode_, "on by default");
    tool.rare(tool.app().add_flag("--wait-port,!--no-wait-port", wait_port_, "wait for servers"));
    std::vector<const char*> argv = {"toy-tool"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    ToolTestResult result;
    result.code = tool.run(static_cast<int>(argv.size()), argv.data(), [&]() -> StatusOr<int> {
      threads_ = tool.common().threads;
      if (!status.ok()) return status;
      tool.log(LogLevel::kInfo, "running");
      tool.log(LogLevel::kDebug, "detail");
      MILLRACE_RETURN_IF_ERROR(tool.write_output("result\n"));
      return code;
    });
    result.out = testing::internal::GetCapturedStdout();
    result.err = testing::internal::GetCapturedStderr();
    return result;
  }

  std::filesystem::path folder_;
  std::string input_;
  int trainers_ = 1;
  std::string pservers_;
  int count_ = 0;
  double ratio_ = 0;
  bool wait_port_ = false;
  bool half_async_ = false;
  bool sync_mode_ = true;
  int threads_ = -1;
};

TEST_F(ToolTest, HelpFitsEightyColumnsAndShowsDefaults) {
  const ToolTestResult result = run({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("toy-tool - does nothing"));
  EXPECT_THAT(result.out, HasSubstr("number of trainers (default: 1)"));
  EXPECT_THAT(result.out, HasSubstr("Cluster:"));
  EXPECT_THAT(result.out, HasSubstr("  1  the answer is no"));
  EXPECT_THAT(result.out, HasSubstr("toy-tool --trainers 4 model"));
  EXPECT_THAT(result.out, Not(HasSubstr("--wait-port")));
  std::istringstream lines(run({"--help-all"}).out);
  bool rare = false;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    rare = rare || line.find("--wait-port") != std::string::npos;
  }
  EXPECT_TRUE(rare);
}

TEST_F(ToolTest, ManualPageShowsEveryOption) {
  const ToolTestResult result = run({"--manual"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr(".TH \"TOY-TOOL\" 1"));
  EXPECT_THAT(result.out, HasSubstr(".SS Cluster\n.TP\n.B \\-\\-trainers"));
  EXPECT_THAT(result.out, HasSubstr("\\-\\-wait\\-port"));  // also rare options
  EXPECT_THAT(result.out, HasSubstr(".TP\n1\nthe answer is no"));
}

TEST_F(ToolTest, CompletionsKnowTheOptions) {
  const ToolTestResult bash = run({"--bash-completion"});
  EXPECT_EQ(bash.code, 0);
  const std::string script = file("toy", bash.out);
  const std::string asked = file("asked", ". " + script +
                                              "\nCOMP_WORDS=(toy-tool --tr) COMP_CWORD=1\n"
                                              "_toy_tool; echo ${COMPREPLY[*]}\n");
  std::string said(64, '\0');
  FILE* const pipe = popen(("bash " + asked).c_str(), "r");  // NOLINT(cert-env33-c): a test
  ASSERT_NE(pipe, nullptr);
  said.resize(std::fread(said.data(), 1, said.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(said, "--trainers\n");
  const ToolTestResult zsh = run({"--zsh-completion"});
  EXPECT_THAT(zsh.out, HasSubstr("#compdef toy-tool"));
  EXPECT_THAT(zsh.out, HasSubstr("'*--trainers=[number of trainers]:"));
}

TEST_F(ToolTest, VersionAsJson) {
  EXPECT_THAT(run({"--version"}).out, HasSubstr("toy-tool 0."));
  const json facts = json::parse(run({"--version", "--json"}).out);
  EXPECT_EQ(facts["schema"]["name"], "millrace.version");
  EXPECT_EQ(facts["tool"], "toy-tool");
}

TEST_F(ToolTest, UnknownOptionGetsASuggestion) {
  const ToolTestResult result = run({"--trainer", "4"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("error: unknown option '--trainer'"));
  EXPECT_THAT(result.err, HasSubstr("did you mean '--trainers'?"));
  EXPECT_EQ(run({"--trainers", "many"}).code, 2);
}

TEST_F(ToolTest, UnderscoresInFlagsAreDashes) {
  EXPECT_EQ(run({"--wait_port", "x"}).code, 0);
  EXPECT_TRUE(wait_port_);
}

TEST_F(ToolTest, ConfigurationYieldsToFlags) {
  const std::string path =
      file("c.json", R"({"trainers": 7, "pservers": ["a:1", "b:2"], "wait_port": true})");
  EXPECT_EQ(run({"--config", path}).code, 0);
  EXPECT_EQ(trainers_, 7);
  EXPECT_EQ(pservers_, "a:1,b:2");
  EXPECT_TRUE(wait_port_);
  EXPECT_EQ(run({"--config", path, "--trainers", "3", "--no-wait-port"}).code, 0);
  EXPECT_EQ(trainers_, 3);
  EXPECT_FALSE(wait_port_);
}

TEST_F(ToolTest, SwitchesAreOnWithoutAValue) {
  using Arguments = std::vector<std::string>;
  for (const Arguments& on : {Arguments{"--half-async"},
                              {"--half-async=true"},
                              {"--half-async", "true"},
                              {"--half-async", "1"},
                              {"--half_async"},
                              {"--half-async", "--trainers", "3"},
                              {"--half-async", "-q"}}) {
    EXPECT_EQ(run(on).code, 0);
    EXPECT_TRUE(half_async_) << on[0] << " " << on.size();
    EXPECT_TRUE(sync_mode_);
  }
  for (const Arguments& off : {Arguments{},
                               {"--half-async=false"},
                               {"--half-async", "false"},
                               {"--half-async=off", "--trainers", "3"}}) {
    EXPECT_EQ(run(off).code, 0);
    EXPECT_FALSE(half_async_);
  }
  EXPECT_EQ(run({"--trainers", "3", "--half-async", "--sync-mode", "no", "in"}).code, 0);
  EXPECT_TRUE(half_async_);
  EXPECT_FALSE(sync_mode_);
  EXPECT_EQ(trainers_, 3);
  EXPECT_EQ(input_, "in");
  const ToolTestResult bad = run({"--half-async=perhaps"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--half-async"));
  EXPECT_THAT(run({"--help"}).out, HasSubstr("--half-async [BOOLEAN]"));
}

TEST_F(ToolTest, SwitchesInTheConfiguration) {
  EXPECT_EQ(run({"--config", file("on.json", R"({"half_async": true, "sync_mode": false})")}).code,
            0);
  EXPECT_TRUE(half_async_);
  EXPECT_FALSE(sync_mode_);
  const std::string off = file("off.json", R"({"half_async": false})");
  EXPECT_EQ(run({"--config", off}).code, 0);
  EXPECT_FALSE(half_async_);
  EXPECT_EQ(run({"--config", off, "--half-async"}).code, 0);
  EXPECT_TRUE(half_async_);
  const ToolTestResult bad = run({"--config", file("bad.json", R"({"half_async": "perhaps"})")});
  EXPECT_EQ(bad.code, 3);
  EXPECT_THAT(bad.err, HasSubstr("--half-async"));
}

TEST_F(ToolTest, BadConfigurationIsBadInput) {
  const ToolTestResult unknown = run({"--config", file("u.json", R"({"trainer": 7})")});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("u.json: configuration: unknown field 'trainer'"));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'trainers'?"));
  const ToolTestResult value = run({"--config", file("v.json", R"({"trainers": "x"})")});
  EXPECT_EQ(value.code, 3);
  EXPECT_THAT(value.err, HasSubstr("--trainers"));
  EXPECT_THAT(run({"--config", file("n.json", "{")}).err,
              HasSubstr("configuration: not valid JSON at line 1, column 2: it ends too early"));
  EXPECT_THAT(run({"--config", file("t.json", "{\"trainers\": 7,\n}")}).err,
              HasSubstr("configuration: not valid JSON at line 2, column 1"));
  EXPECT_EQ(run({"--config", folder_ / "absent.json"}).code, 3);
}

// Of two settings one would be lost.
TEST_F(ToolTest, AConfigurationHasEachFieldOnce) {
  const auto fault = [&](const std::string& text) {
    const ToolTestResult result = run({"--config", file("c.json", text)});
    EXPECT_EQ(result.code, 3) << text;
    return result.err;
  };
  EXPECT_THAT(fault(R"({"trainers": 7, "trainers": 8})"),
              HasSubstr("expected one member \"trainers\" in an object, found two"));
  EXPECT_THAT(fault(R"({"wait_port": true, "wait-port": false})"),
              HasSubstr("configuration: 'wait-port' is given twice"));
  EXPECT_THAT(fault(R"({"config": "d.json"})"),
              HasSubstr("configuration: 'config' works only on the command line"));
  for (const char* const value : {"[]", "{}", "\"\"", "2", "1.5", "[true, false]"}) {
    EXPECT_THAT(fault(fmt::format(R"({{"half_async": {}}})", value)), HasSubstr("true or false"))
        << value;
  }
  EXPECT_THAT(fault(R"({"count": []})"), HasSubstr("expected a whole number from -5 to 100"));
  EXPECT_EQ(run({"--config", file("s.json", R"({"half_async": "no", "sync_mode": 0})")}).code, 0);
  EXPECT_FALSE(half_async_);
  EXPECT_FALSE(sync_mode_);
}

TEST_F(ToolTest, NumbersAreWhole) {
  for (const auto& [text, number] : {std::pair("7", 7), std::pair("-5", -5), std::pair("+3", 3),
                                     std::pair("0", 0), std::pair("0x10", 16)}) {
    EXPECT_EQ(run({std::string("--count=") + text}).code, 0) << text;
    EXPECT_EQ(count_, number) << text;
  }
  for (const char* const text :
       {"", "-6", "101", "010", "1.5", "1e1", "7 ", "0x", "x", "18446744073709551617"}) {
    const ToolTestResult result = run({"--count", text});
    EXPECT_EQ(result.code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr(std::string("--count: expected a whole number from -5 to "
                                                  "100, found '") +
                                      text + "'"));
  }
  EXPECT_EQ(run({"--seed", "18446744073709551615"}).code, 0);
  EXPECT_EQ(run({"--seed", "18446744073709551616"}).code, 2);
  EXPECT_EQ(run({"--seed", "-1"}).code, 2);
}

// No comparison with NaN is true, so a tolerance of NaN would accept anything.
TEST_F(ToolTest, NumbersAreFinite) {
  EXPECT_EQ(run({"--ratio", "5e-1"}).code, 0);
  EXPECT_EQ(ratio_, 0.5);
  for (const char* const text : {"nan", "inf", "-0.1", "1.1", "", "half"}) {
    const ToolTestResult result = run({"--ratio", text});
    EXPECT_EQ(result.code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr("--ratio: expected a number from 0 to 1"));
  }
}

// They are those of the command that launch starts.
TEST_F(ToolTest, WhatFollowsTwoDashesIsNoOption) {
  for (const char* const text : {"--log_format=x", "--max_model_bytes", "--help", "--version"}) {
    const ToolTestResult result = run({"--", text});
    EXPECT_EQ(result.out, "result\n") << text;
    EXPECT_EQ(input_, text);
  }
  EXPECT_EQ(run({"--log_format=json"}).code, 0);
}

TEST_F(ToolTest, PrintConfigSaysWhereValuesComeFrom) {
  const std::string path = file("c.json", R"({"trainers": 7})");
  const json all = json::parse(run({"--config", path, "--pservers=a:1", "--print-config"}).out);
  EXPECT_EQ(all["settings"]["trainers"]["value"], "7");
  EXPECT_EQ(all["settings"]["trainers"]["source"], "configuration");
  EXPECT_EQ(all["settings"]["pservers"]["source"], "command line");
  EXPECT_EQ(all["settings"]["wait_port"]["source"], "default");
}

TEST_F(ToolTest, ErrorsAsTextAndJson) {
  Location where;
  where.file = "m\x1b[2J";
  where.block = 0;
  where.op = 14;
  where.op_type = "sgd";
  where.var = "w@GRAD";
  const Status status =
      InvalidProgram("reads '{}', which no op writes", "w@GRAD").at(where).with_hint("look there");
  const ToolTestResult text = run({}, status);
  EXPECT_EQ(text.code, 3);
  EXPECT_EQ(text.out, "");
  EXPECT_EQ(text.err,
            "error: m\\x1b[2J: block 0, op 14 (sgd), 'w@GRAD': reads 'w@GRAD', which no op "
            "writes\n  hint: look there\n");
  const json error = json::parse(run({"--json"}, status).out)["error"];
  EXPECT_EQ(error["code"], "invalid-program");
  EXPECT_EQ(error["block"], 0);
  EXPECT_EQ(error["op_index"], 14);
  EXPECT_EQ(error["op_type"], "sgd");
  EXPECT_EQ(error["hint"], "look there");
  EXPECT_FALSE(error.contains("slot"));
}

TEST_F(ToolTest, FieldsOfOptionsAreNamedByTheirFlags) {
  const Status status = Status(StatusCode::kUsage,
                               "expected only one of options.data, options.files and "
                               "options.steps_file, found 'options.data'")
                            .with_hint("set options.allow_original")
                            .with_note("options.columns: options.columns_of is no field");
  EXPECT_EQ(run({}, status).err,
            "error: expected only one of --data, --files and --feed-steps, found 'options.data'\n"
            "  hint: convert it with: checkpoint convert --to checkpoint\n"
            "  note: --columns: options.columns_of is no field\n");
}

TEST_F(ToolTest, EachCodeHasItsExitCode) {
  const std::vector<std::pair<StatusCode, int>> codes = {
      {StatusCode::kUsage, 2},         {StatusCode::kInvalidArgument, 3},
      {StatusCode::kInvalidData, 3},   {StatusCode::kNotFound, 3},
      {StatusCode::kExecution, 4},     {StatusCode::kDistributed, 5},
      {StatusCode::kResource, 6},      {StatusCode::kIo, 6},
      {StatusCode::kUnimplemented, 7}, {StatusCode::kInternal, 70}};
  for (const auto& [code, exit] : codes) EXPECT_EQ(run({}, Status(code, "x")).code, exit);
  EXPECT_EQ(run({}, Ok(), kAnswerIsNo).code, 1);
}

TEST_F(ToolTest, OutputsAreReplacedOnlyWithForce) {
  const std::string path = file("out", "old");
  const ToolTestResult refused = run({"-o", path});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("output exists already"));
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_EQ(run({"-o", path, "--force"}).code, 0);
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "result");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}),
            1);  // no temporary file is left
  EXPECT_EQ(run({"-o", folder_ / "no/such"}).code, 3);
  EXPECT_EQ(run({"-o", folder_}).code, 3);
  EXPECT_EQ(run({"-o", "/dev/null"}).code, 0);
}

TEST_F(ToolTest, LogLinesObeyQuietAndVerbose) {
  EXPECT_THAT(run({}).err, ::testing::MatchesRegex(
                               "[0-9-]+T[0-9:]+\\.[0-9][0-9][0-9]Z info toy-tool: running\n"));
  EXPECT_EQ(run({"-q"}).err, "");
  EXPECT_THAT(run({"-v"}).err, HasSubstr("debug toy-tool: detail"));
  EXPECT_EQ(json::parse(run({"--log-format=json"}).err)["text"], "running");
  EXPECT_GT(threads_, 0);
}

TEST_F(ToolTest, ExceptionsBecomeBugReports) {
  Tool tool(
      {.name = "toy-tool", .purpose = "throws", .examples = {}, .exit_codes = {}, .notes = {}});
  const char* argv[] = {"toy-tool"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(tool.run(1, argv, []() -> StatusOr<int> { throw std::runtime_error("boom"); }), 70);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("boom"));
}

}  // namespace
}  // namespace millrace::tools
