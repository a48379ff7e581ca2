#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "ps/communicator/communicator.h"
#include "tests/ps/fake_sender.h"
#include "tests/support/program_builder.h"

// The first form of the Communicator: its settings come from a trainer program.

namespace millrace::ps {
namespace {

using millrace::testing::ProgramBuilder;
using testing::context;
using testing::contexts;
using testing::dense;
using ::testing::ElementsAre;
using testing::FakeSender;
using testing::FakeServers;
using testing::floats;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A trainer program that is split at run time, as in fc_async_runtime_split.
void add_async_ops(ProgramBuilder& builder) {
  builder.param("w", {4, 1}).var("w@GRAD", {4, 1}).var("lr", {1}, DType::kInt64);
  Op& send = builder.op("send", {{"X", {"w@GRAD"}}}, {{"Out", {"c"}}});
  send.set_strings("send_varnames", {"w@GRAD.block0", "w@GRAD.block1"});
  send.set_strings("epmap", {"h:1", "h:2"});
  send.set_attr("sections", make_attr(std::vector<int64_t>{2, 2}));
  Op& count = builder.op("send", {{"X", {"lr"}}}, {{"Out", {"c"}}});
  count.set_strings("send_varnames", {"lr"});
  count.set_strings("epmap", {"h:1", "h:2"});
  count.set_bool("merge_add", true);
  count.set_bool("use_send_handler", false);
  Op& recv = builder.op("recv", {{"X", {"c"}}}, {{"Out", {"w"}}});
  recv.set_strings("recv_varnames", {"w.block0", "w.block1"});
  recv.set_strings("epmap", {"h:1", "h:2"});
  recv.set_attr("trainer_id", make_attr(int32_t{1}));
}

StatusOr<std::unique_ptr<Communicator>> of(Program& program, FakeServers& servers) {
  return Communicator::of_program(program, {}, std::make_shared<FakeSender>(servers));
}

TEST(ProgramContextsTest, ReadsSendAndRecvOpsAndTakesOverTheReceiving) {
  ProgramBuilder builder;
  add_async_ops(builder);
  FakeServers servers;
  auto comm = of(builder.program(), servers);
  ASSERT_TRUE(comm.ok()) << comm.status().to_string();
  EXPECT_EQ((*comm)->mode(), CommMode::kAsync);
  const CommContext& grad = (*comm)->send_contexts().at("w@GRAD");
  EXPECT_THAT(grad.split_varnames, ElementsAre("w@GRAD.block0", "w@GRAD.block1"));
  EXPECT_THAT(grad.split_endpoints, ElementsAre("h:1", "h:2"));
  EXPECT_THAT(grad.sections, ElementsAre(2, 2));
  EXPECT_FALSE(grad.aggregate);
  EXPECT_TRUE(grad.use_send_handler);
  const CommContext& count = (*comm)->send_contexts().at("lr");
  EXPECT_TRUE(count.aggregate);
  EXPECT_FALSE(count.use_send_handler);
  EXPECT_THAT(count.split_varnames, ElementsAre("lr", "lr"));
  const CommContext& param = (*comm)->receive_contexts().at("w");
  EXPECT_THAT(param.split_varnames, ElementsAre("w.block0", "w.block1"));
  EXPECT_EQ(param.trainer_id, 1);
  EXPECT_EQ(get_attr_or<int32_t>(builder.block().back(), "do_not_run", 0), 1);
}

TEST(ProgramContextsTest, ABarrierOfTheKindMakesItHalfAsync) {
  ProgramBuilder builder;
  add_async_ops(builder);
  builder.op("send_barrier", {}, {}).set_bool("half_async", true);
  FakeServers servers;
  auto comm = of(builder.program(), servers);
  ASSERT_TRUE(comm.ok());
  EXPECT_EQ((*comm)->mode(), CommMode::kHalfAsync);
}

TEST(ProgramContextsTest, DoesNothingOnEmptyAndSyncPrograms) {
  ProgramBuilder empty;
  ProgramBuilder sync;
  sync.op("send", {{"X", {"g"}}}, {{"Out", {"c"}}}).set_strings("epmap", {"h:1"});
  sync.op("send_barrier", {}, {}).set_bool("half_async", false);
  sync.op("recv", {}, {{"Out", {"w"}}}).set_strings("epmap", {"h:1"});
  for (Program* const program : {&empty.program(), &sync.program()}) {
    FakeServers servers;
    auto comm = of(*program, servers);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    EXPECT_FALSE((*comm)->is_running());
    ASSERT_TRUE((*comm)->start().ok());
    EXPECT_TRUE((*comm)->is_running());
    ASSERT_TRUE((*comm)->start().ok());
    EXPECT_THAT((*comm)->remarks(), ElementsAre("the communicator has been started already"));
    Scope scope;
    EXPECT_TRUE((*comm)->finish_step(scope).ok());
    EXPECT_TRUE((*comm)->recv(scope).ok());
    ASSERT_TRUE((*comm)->stop().ok());
    ASSERT_TRUE((*comm)->stop().ok());
    EXPECT_FALSE((*comm)->is_running());
    EXPECT_THAT(servers.log, IsEmpty());
  }
  for (const Op& op : sync.block().ops()) EXPECT_FALSE(op.has_attr("do_not_run"));
}

TEST(ProgramContextsTest, CanBeStartedAgain) {
  ProgramBuilder builder;
  add_async_ops(builder);
  FakeServers servers;
  auto comm = of(builder.program(), servers);
  ASSERT_TRUE(comm.ok());
  for (int round = 1; round <= 2; ++round) {
    ASSERT_TRUE((*comm)->start().ok());
    ASSERT_TRUE((*comm)->send("w@GRAD", dense({1})).ok());
    ASSERT_TRUE((*comm)->stop().ok());
    EXPECT_THAT(servers.vars["w@GRAD"], ElementsAre(round));
  }
}

TEST(ProgramContextsTest, TheLaterFormChecksItsArguments) {
  FakeServers servers;
  ProgramBuilder builder;
  const auto message = [&](int mode, const CommContexts& vars, int trainers, int nums) {
    return Communicator::of_program(builder.program(), mode, vars, trainers, nums, {},
                                    std::make_shared<FakeSender>(servers))
        .status()
        .message();
  };
  const CommContexts vars = contexts({context("w")});
  EXPECT_THAT(message(0, {}, 0, 0), HasSubstr("0 is no mode"));
  EXPECT_THAT(message(4, {}, 0, 0), HasSubstr("4 is no mode"));
  EXPECT_EQ(message(3, vars, 0, 10), "trainers is 0, expected more than 0");
  EXPECT_EQ(message(3, vars, 2, 0), "push_nums is 0, expected more than 0");
  EXPECT_EQ(message(3, {}, 2, 10), "push_vars is empty; geo has nothing to exchange");
  auto geo = Communicator::of_program(builder.program(), 3, vars, 2, 10, {},
                                      std::make_shared<FakeSender>(servers));
  ASSERT_TRUE(geo.ok());
  EXPECT_EQ((*geo)->options().max_merge_var_num, 10);
  EXPECT_THAT((*geo)->send_contexts().at("w").split_varnames, ElementsAre("w.delta"));
}

TEST(ProgramContextsTest, NamesTheOpWhosePiecesDisagree) {
  ProgramBuilder builder;
  add_async_ops(builder);
  builder.block().front().set_strings("epmap", {"h:1", "h:2", "h:3"});
  FakeServers servers;
  const Status status = of(builder.program(), servers).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidProgram);
  EXPECT_EQ(status.message(), "context 'w@GRAD' has 2 slices, but 3 endpoints");
  EXPECT_EQ(status.location().op_type, "send");
}

}  // namespace
}  // namespace millrace::ps
