// A trainer and a server of different distributions or programs refuse each other at the greeting,
// although the names of their vars agree.
#include <gmock/gmock.h>

#include "framework/read_program.h"
#include "ps/client/connect.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::map<std::string, std::vector<float>> kPlanStart = {{"w", {8, 16}}, {"rate", {0.5}}};

// The status of a greeting with these facts.
Status greeting(const std::string& server_program, const PlanFacts& of_server,
                const PlanFacts& of_trainer) {
  const auto way = std::make_shared<InprocTransport>();
  ServerOptions options;
  options.plan = of_server;
  TestServer server(way, server_program, kPlanStart, options);
  TestTrainer trainer(way, 0);
  trainer.client().set_plan({{"server", of_trainer}});
  Status status = trainer.client().mode_of("server").status();
  if (status.ok()) {
    EXPECT_TRUE(trainer.leave().ok());
  }
  return status;
}

TEST(Plan, ADifferenceIsRefusedAtTheGreeting) {
  const PlanFacts own = {"server 0 of 2", "slice w f32 [2] from element 0 of v f32 [4]"};
  EXPECT_TRUE(greeting(sync_server(1), own, own).ok());
  const auto refused = [&](const PlanFacts& told, const char* theirs, const char* ours) {
    const Status status = greeting(sync_server(1), own, told);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("trainer 0"), HasSubstr("server 0 at server"),
                                          HasSubstr(theirs), HasSubstr(ours)));
  };
  refused({"server 1 of 2", own[1]}, "has 'server 1 of 2'", "has 'server 0 of 2'");
  refused({own[0], "slice w f32 [2] from element 0 of v f32 [6]"}, "of v f32 [6]'",
          "of v f32 [4]'");
  refused({own[0]}, "trainer 0 has nothing else", "has 'slice w ");
  // one side without slices.json does not know
  EXPECT_TRUE(greeting(sync_server(1), {}, own).ok());
  EXPECT_TRUE(greeting(sync_server(1), own, {}).ok());
}

TEST(Plan, AnotherOptimizerModeOrNumberOfTrainersIsRefused) {
  const PlanFacts own = {"server 0 of 1", training_fact("sync with 2 trainers"),
                         training_fact("sgd updates w")};
  EXPECT_TRUE(greeting(sync_server(1), own, own).ok());
  for (const char* const other : {"sync with 3 trainers", "async with 2 trainers"}) {
    const Status status = greeting(sync_server(1), own, {own[0], training_fact(other), own[2]});
    EXPECT_THAT(status.to_string(),
                AllOf(HasSubstr(std::string("trainer 0 has 'training: ") + other),
                      HasSubstr("server 0 at server has 'training: sync with 2 trainers'")));
  }
  EXPECT_THAT(
      greeting(sync_server(1), own, {own[0], own[1], training_fact("adam updates w")}).to_string(),
      AllOf(HasSubstr("adam updates w"), HasSubstr("sgd updates w")));
}

TEST(Plan, AnotherProgramWithTheSameNamesIsRefused) {
  EXPECT_TRUE(greeting(sync_server(1), {}, {received_fact("w", "f32 [2]")}).ok());
  EXPECT_THAT(greeting(sync_server(1), {}, {received_fact("w", "f32 [3]")}).to_string(),
              AllOf(HasSubstr("the trainer receives w as f32 [3]"),
                    HasSubstr("the server holds w as f32 [2]")));
  EXPECT_THAT(greeting(sync_server(1), {}, {received_fact("w", "f64 [2]")}).to_string(),
              HasSubstr("receives w as f64 [2]"));
  // reported when it is fetched
  EXPECT_TRUE(greeting(sync_server(1), {}, {received_fact("unknown", "f32 [3]")}).ok());
}

TEST(Plan, ScalarsAndUnknownDimsFit) {
  EXPECT_EQ(type_fact(DType::kFloat32, {}), "f32 [1]");
  EXPECT_EQ(type_fact(DType::kFloat32, {1, 1}), "f32 [1]");
  EXPECT_EQ(type_fact(DType::kInt64, {2, 3}), "i64 [2, 3]");
  EXPECT_EQ(type_fact(DType::kFloat32, {-1, 3}), "");
}

TEST(Plan, AProgramTellsWhatItReceives) {
  const auto program = read_program_bytes(R"(# millrace program 1

block 0 {
  persist w: f32(4, 3)
  persist w.block0: f32(2, 3)
  persist w.block1: f32(2, 3)
  persist batch: f32(-1, 3)
  recv -> Out=w.block0, w.block1 {epmap: ["a:1", "b:1"], recv_varnames: strings[]}
  recv -> Out=w {epmap: ["a:1", "b:1"], recv_varnames: ["w.block0", "w.block1"]}
  recv -> Out=batch {epmap: ["a:1"], recv_varnames: strings[]}
  send_barrier -> Out=w {endpoints: ["a:1", "b:1"]}
}
)",
                                          "trainer", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const auto facts = facts_of_program(**program);
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_THAT(facts.at("a:1"), ElementsAre("receives w.block0 as f32 [2, 3]"));
  EXPECT_THAT(facts.at("b:1"), ElementsAre("receives w.block1 as f32 [2, 3]"));
  EXPECT_THAT(facts_of_program(*Program::create()), IsEmpty());
}

}  // namespace
}  // namespace millrace::ps
