// What the file of --minimize may say: a misspelled member leaves a default in its place.

#include "jobs/config/minimize_config.h"

#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "framework/export.h"
#include "framework/read_program.h"
#include "jobs/run/batch.h"
#include "ops/minimize/minimize.h"
#include "ops/registry.h"

namespace millrace::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string fault(const std::string& text) {
  return parse_minimize_config(text).status().to_string();
}

std::string unread(const std::string& text) {
  const auto config = parse_minimize_config(text);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->unread.size(), 1U);
  return config->unread.empty() ? "" : config->unread.front().to_string();
}

// A reference may have a member more than those that are known.
TEST(MinimizeConfig, MembersThatNothingReadsAreTold) {
  EXPECT_THAT(unread(R"({"losses": ["l"], "optimizers": [{"type": "adam"}]})"),
              HasSubstr("'optimizers': unknown key"));
  EXPECT_THAT(unread(R"({"losses": ["l"], "no_grad": ["w"], "loss": "l"})"),
              HasSubstr("'no_grad': unknown key"));
  EXPECT_THAT(unread(R"({"losses": ["l"], "parameters": [{"name": "w", "trainble": false}]})"),
              HasSubstr("'parameters[0].trainble': unknown key"));
}

// With two optimizers, or two rates, the file does not say which one is meant.
TEST(MinimizeConfig, RepeatedMembersAreErrors) {
  EXPECT_THAT(fault(R"({"losses": ["l"], "losses": ["m"]})"),
              HasSubstr("expected one member \"losses\" in an object, found two"));
  EXPECT_THAT(fault(R"({"losses": ["l"], "optimizer": [{"type": "sgd", "type": "adam"}]})"),
              HasSubstr("expected one member \"type\" in an object, found two"));
}

// A rate of 0.01 was assumed, which no release of the original does.
TEST(MinimizeConfig, RatesAreStated) {
  for (const char* const rate : {"", R"(, "learning_rate": null)", R"(, "schedule": null)"}) {
    EXPECT_THAT(
        fault(R"({"losses": ["l"], "optimizer": [{"type": "adam")" + std::string(rate) + "}]}"),
        HasSubstr("'optimizer[0].learning_rate': expected a number, or a schedule as "
                  "'optimizer[0].schedule', found neither"));
  }
}

TEST(MinimizeConfig, ErrorsOfTheTextHaveAPosition) {
  EXPECT_THAT(fault("{\"losses\": [\"l\"],\n \"optimizer\": [{}],\n}"),
              HasSubstr("not valid JSON at line 3, column 1"));
  EXPECT_THAT(fault("{\"losses\": ["), HasSubstr("column 13: it ends too early"));
  EXPECT_THAT(fault(""), HasSubstr("line 1, column 1: it ends too early"));
  EXPECT_THAT(fault("[]"), HasSubstr("expected a JSON object, found a list"));
}

TEST(MinimizeConfig, FactsOfTheReferencesAreIgnored) {
  const auto config = parse_minimize_config(
      R"({"program": "p", "steps": 10, "loss": "l", "losses": ["l"], "op_counts": {"mul": 1},
          "parameters": [{"name": "w", "shape": [1]}], "optimizer": [{"type": "sgd", "learning_rate": 0.1}]})");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->has_optimizers);
  EXPECT_TRUE(config->unread.empty());
  EXPECT_THAT(config->losses.front().options.parameters, ElementsAre("w"));
  EXPECT_FALSE(parse_minimize_config(R"({"losses": ["l"]})")->has_optimizers);
}

// The page docs/minimize.md.
class MinimizePage : public ::testing::Test {
 protected:
  // The training program that an optimizer makes, as bytes.
  static std::string trained_by(const std::string& optimizer) {
    const auto config =
        parse_minimize_config(R"({"losses": ["mean_0.tmp_0"], "optimizer": [)" + optimizer + "]}");
    EXPECT_TRUE(config.ok()) << optimizer << config.status().to_string();
    const auto registry = ops::standard_registry();
    const std::unique_ptr<Program> main = read("main");
    const std::unique_ptr<Program> startup = read("startup");
    ops::Builder builder(*registry, *main, *startup);
    const auto made = ops::minimize(builder, "mean_0.tmp_0", config->losses.front().options);
    EXPECT_TRUE(made.ok()) << optimizer << made.status().to_string();
    return export_program(*main) + export_program(*startup);
  }
  static std::unique_ptr<Program> read(const std::string& name) {
    return *read_program("tests/data/frontend/fit_a_line." + name + ".pb");
  }

  std::string text_ = *read_file("docs/minimize.md", 1 << 20);
};

TEST_F(MinimizePage, HasAnExampleThatIsRead) {
  const size_t begin = text_.find("```json") + 7;
  const auto config = parse_minimize_config(text_.substr(begin, text_.find("```", begin) - begin));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->losses.size(), 1U);
  EXPECT_TRUE(config->has_optimizers);
}

TEST_F(MinimizePage, SaysTheDefaultsOfEveryOptimizer) {
  std::istringstream lines(text_);
  int optimizers = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find("` |", 3);
    // other tables have no members with values
    const bool is_row = line.starts_with("| `") && end != std::string::npos &&
                        (line.find("`\"") != std::string::npos || line.substr(end) == "` | |");
    if (!is_row || line.find('{') != std::string::npos) continue;
    std::string members;
    for (size_t at = line.find("`\"", end); at != std::string::npos;) {
      const size_t stop = line.find('`', at + 1);
      members += ", " + line.substr(at + 1, stop - at - 1);
      at = line.find("`\"", stop + 1);
    }
    const std::string type = R"({"learning_rate": 0.5, "type": ")" + line.substr(3, end - 3) + '"';
    EXPECT_EQ(trained_by(type + members + "}"), trained_by(type + "}")) << line;
    ++optimizers;
  }
  EXPECT_EQ(optimizers, 13);  // all but momentum_fused, which has no members of its own
}

// A line of --batch.
TEST(BatchCase, HasOnlyWhatARunReads) {
  const auto read = parse_batch_case(R"({"program": "p", "feed": "f.npz", "fetch": ["a", "b"]})");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->program, "p");
  EXPECT_EQ(read->feed, "f.npz");
  EXPECT_THAT(read->fetches, ElementsAre("a", "b"));
  const auto refused = [](const std::string& line) {
    return parse_batch_case(line).status().message();
  };
  EXPECT_THAT(refused(R"({"program": "p", "feeds": "f.npz"})"), HasSubstr("'feeds': unknown key"));
  EXPECT_THAT(refused(R"({"program": "p", "fetch": "a"})"), HasSubstr("expected a list of names"));
  EXPECT_THAT(refused(R"({"program": ["p"]})"), HasSubstr("'program': expected a string"));
  EXPECT_THAT(refused(R"({"program": "p",})"), HasSubstr("not valid JSON at line 1, column 17"));
}

}  // namespace
}  // namespace millrace::jobs
