#include "transpiler/distribute/typed_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "framework/read_program.h"
#include "transpiler/roles.h"

// An embedding is removed from its program: lookups and pushes refer to a typed table, and the
// facts that the table needs are extracted.

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTypedTablesVars = R"(
  persist emb: f32(100, 4)
  persist rate: f32(1)
  var ids: i64(-1, 1)
  var more: i64(-1, 1)
  var a: f32(-1, 4)
  var b: f32(-1, 4)
  var a@GRAD: f32(-1, 4)
  var b@GRAD: f32(-1, 4)
  var emb@GRAD@0: selected_rows f32(100, 4)
  var emb@GRAD@1: selected_rows f32(100, 4)
  var emb@GRAD: selected_rows f32(100, 4)
)";

std::string main_text(const std::string& between = "", const std::string& grad = "emb@GRAD",
                      int padding = -1) {
  return std::string("# millrace program 1\n\nblock 0 {") + kTypedTablesVars + R"(
  lookup_table_v2 Ids=ids W=emb -> Out=a {padding_idx: -1l}
  lookup_table_v2 Ids=more W=emb -> Out=b {padding_idx: )" +
         std::to_string(padding) + R"(l}
  lookup_table_v2_grad Ids=more W=emb Out@GRAD=b@GRAD -> W@GRAD=emb@GRAD@0 {is_sparse: true}
  lookup_table_v2_grad Ids=ids W=emb Out@GRAD=a@GRAD -> W@GRAD=emb@GRAD@1 {is_sparse: true}
  sum X=emb@GRAD@0, emb@GRAD@1 -> Out=emb@GRAD
)" + between +
         "  sgd Param=emb Grad=" + grad + " LearningRate=rate -> ParamOut=emb\n}\n";
}

constexpr const char* kStartup = R"(# millrace program 1

block 0 {
  persist emb: f32(100, 4)
  persist rate: f32(1)
  uniform_random -> Out=emb {shape: [100l, 4l], seed: 3, min: -0.5, max: 0.5}
  fill_constant -> Out=rate {shape: [1l], value: 0.25}
}
)";

std::unique_ptr<Program> read_typed_tables(const std::string& text) {
  auto program = read_program_bytes(text, "test", {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

TEST(TypedTables, LookupsAndGradientsBecomeTwoOps) {
  const auto main = read_typed_tables(main_text());
  const auto startup = read_typed_tables(kStartup);
  const auto facts = use_typed_table(*main, *startup, {"emb", 2, "", "", false});
  ASSERT_TRUE(facts.ok()) << facts.status().to_string();
  EXPECT_EQ(facts->height, 100);
  EXPECT_EQ(facts->width, 4);
  EXPECT_EQ(facts->optimizer, "sgd");
  EXPECT_EQ(facts->learning_rate, 0.25);
  EXPECT_EQ(facts->initializer, "uniform_random&3&-0.5&0.5");
  std::vector<std::string> types;
  for (const Op& op : main->root().ops()) types.push_back(op.type().str());
  EXPECT_THAT(types, ElementsAre("fill_constant", "fill_constant", "distributed_lookup_table",
                                 "distributed_push_sparse"));
  const Op& push = main->root().back();
  EXPECT_THAT(push.input("Ids"), ElementsAre("more", "ids"));
  EXPECT_THAT(push.output("Outputs"), ElementsAre("b@GRAD", "a@GRAD"));
  EXPECT_EQ(role::of(push), role::kBackward);
  EXPECT_EQ(get_attr_or<std::string>(push, "op_namescope", ""), "/");
  EXPECT_EQ(main->root().find_var("emb@GRAD"), nullptr);
  EXPECT_NE(startup->root().last_writer("emb"), nullptr);
}

// One op looks up all ids, so it runs as soon as the last of them are known.
TEST(TypedTables, LookupsWaitForComputedIds) {
  for (const bool ids_last : {false, true}) {
    const std::string first = ids_last ? "more" : "ids";
    const std::string second = ids_last ? "ids" : "more";
    std::string text = main_text();
    const std::string ops = "  abs X=" + first + " -> Out=" + first + "\n  abs X=" + second +
                            " -> Out=" + second + "\n";
    text.insert(text.find("  lookup_table_v2 "), ops);
    const auto main = read_typed_tables(text);
    const auto startup = read_typed_tables(kStartup);
    const auto facts = use_typed_table(*main, *startup, {"emb", 2, "", "", false});
    ASSERT_TRUE(facts.ok()) << facts.status().to_string();
    std::vector<std::string> types;
    for (const Op& op : main->root().ops()) types.push_back(op.type().str());
    EXPECT_THAT(types, ElementsAre("fill_constant", "fill_constant", "abs", "abs",
                                   "distributed_lookup_table", "distributed_push_sparse"));
  }
}

TEST(TypedTables, WhatServersCannotDoIsRefused) {
  const auto message = [](const std::string& text, const std::string& startup,
                          const TypedTableUse& use) {
    const auto main = read_typed_tables(text);
    const auto start = read_typed_tables(startup);
    return use_typed_table(*main, *start, use).status().message();
  };
  const std::string clip = "  clip X=emb@GRAD -> Out=emb@GRAD@1 {min: -1.0, max: 1.0}\n";
  EXPECT_THAT(message(main_text(clip, "emb@GRAD@1"), kStartup, {"emb", 0, "", "", false}),
              HasSubstr("passes through 'clip'"));
  EXPECT_THAT(message(main_text("  scale X=rate -> Out=rate {scale: 0.5}\n"), kStartup,
                      {"emb", 0, "", "", false}),
              HasSubstr("'rate' is computed by the program"));
  EXPECT_THAT(message(main_text("  scale X=emb -> Out=a {scale: 0.5}\n"), kStartup,
                      {"emb", 0, "", "", false}),
              HasSubstr("a 'scale' reads it"));
  EXPECT_THAT(message(main_text("", "emb@GRAD", 3), kStartup, {"emb", 0, "", "", false}),
              HasSubstr("the lookups of table 'emb' have padding_idx -1 and 3"));
  EXPECT_THAT(message(main_text(), kStartup, {"other", 0, "", "", false}),
              HasSubstr("'other' has 0 lookups"));
  EXPECT_THAT(message(main_text(), kStartup, {"emb", 0, "shown", "clicked", false}),
              HasSubstr("'shown', which the program does not have"));
  EXPECT_THAT(message(main_text("  clip X=emb@GRAD -> Out=a@GRAD {min: -1.0, max: 1.0}\n"),
                      kStartup, {"emb", 0, "", "", false}),
              HasSubstr("'clip' reads its gradient 'emb@GRAD', which only servers have"));
}

// The program with adam in place of sgd. `more`: further inputs.
std::string adam_text(const std::string& more = "") {
  std::string text = main_text();
  const size_t update = text.find("  sgd ");
  text.insert(update, "  adam Param=emb Grad=emb@GRAD LearningRate=rate Moment1=m" + more +
                          " -> ParamOut=emb {beta1: 0.9}\n}\n");
  text.resize(text.find("}\n}\n", update) + 4);
  const std::string vars = "  persist m: f32(100, 4)\n  var tensor: f32(1)\n";
  return text.insert(text.find("  var ids"), vars);
}

TEST(TypedTables, AdamOfTheProgramMustBeThatOfTables) {
  const auto message = [](const std::string& text, const std::string& start) {
    std::string startup = kStartup;
    startup.insert(startup.find("  uniform_random"), "  persist m: f32(100, 4)\n" + start);
    const auto main = read_typed_tables(text);
    return use_typed_table(*main, *read_typed_tables(startup), {"emb", 0, "", "", false})
        .status()
        .message();
  };
  const std::string zero = "  fill_constant -> Out=m {shape: [100l, 4l], value: 0.0}\n";
  EXPECT_EQ(message(adam_text(), zero), "");
  EXPECT_THAT(message(adam_text(" Beta1Tensor=tensor"), zero),
              HasSubstr("Beta1Tensor of adam is no input of its rule on servers"));
  EXPECT_THAT(message(adam_text(), "  fill_constant -> Out=m {shape: [100l, 4l], value: 0.5}\n"),
              HasSubstr("Moment1 of adam starts differently than in its rule on servers"));
}

TEST(TypedTables, NumbersAreThoseOfTheText) {
  const auto main = read_typed_tables(main_text());
  std::string startup = kStartup;
  startup.insert(startup.find("value: 0.25"), "str_value: \"0.125\", ");
  const auto facts = use_typed_table(*main, *read_typed_tables(startup), {"emb", 2, "", "", false});
  ASSERT_TRUE(facts.ok()) << facts.status().to_string();
  EXPECT_EQ(facts->learning_rate, 0.125);
}

// Only a constant 1 is what an instance without statistics shows.
TEST(TypedTables, AVarThatIsCalledLikeTheStatisticsIsNotTaken) {
  std::string text = main_text();
  text.insert(text.find("  lookup_table_v2 "),
              "  fill_constant -> Out=show {shape: [1l], value: 7.0}\n");
  text.insert(text.find("  var ids"), "  var show: f32(1)\n");
  const auto main = read_typed_tables(text);
  const auto facts =
      use_typed_table(*main, *read_typed_tables(kStartup), {"emb", 2, "", "", false});
  ASSERT_TRUE(facts.ok()) << facts.status().to_string();
  EXPECT_EQ(main->root().back().first_input("Shows").str(), "show@TABLE");
}

}  // namespace
}  // namespace millrace::transpiler
