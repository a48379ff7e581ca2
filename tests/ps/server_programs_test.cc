// Rare forms of server programs: blocks that merge nothing or do not average, an empty block, a
// block for the learning rate, federated parameters; and the locks and threads of blocks.
#include <condition_variable>
#include <mutex>
#include <set>

#include <gmock/gmock.h>

#include "ps/server/server_core.h"
#include "ps/server/var_guards.h"
#include "tests/ps/direct_server.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

using test::DirectServer;
using test::DirectTrainer;
using test::put_numbers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

void fill_programs(Scope& scope) {
  put_numbers<float>(scope, "w", DType::kFloat32, {8, 16});
  put_numbers<float>(scope, "rate", DType::kFloat32, {0.5});
}

// A synchronous server of a job with one trainer, with a block that does not begin with a sum.
TEST(ServerPrograms, AGradientThatIsNotMergedIsAccepted) {
  std::string text = async_server(1);
  const std::string mode = "distributed_mode: ";
  text.replace(text.find(mode), mode.size() + 1, mode + "0");
  DirectServer server(text, {}, fill_programs);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  Floats seen;
  ASSERT_TRUE(trainer.fetch().ok());
  for (int k = 0; k < 2; ++k) {
    const Status sent = trainer.send("w@GRAD", floats({2, 4}));
    ASSERT_TRUE(sent.ok()) << sent.to_string();
    ASSERT_TRUE(trainer.fetch(&seen).ok());
  }
  EXPECT_THAT(seen, ElementsAre(6, 12));
  EXPECT_THAT(trainer.send("v@GRAD", floats({2, 4})).to_string(),
              HasSubstr("does not accept 'v@GRAD' from trainer 0"));
}

// Only an op `scale` of the sum averages. Other ops after the sum run in every step, also without
// some of the trainers.
TEST(ServerPrograms, ASumThatIsNotAveragedIsASumOfThoseWhoCame) {
  std::string text = sync_server(2);
  const size_t at = text.find("  scale ");
  text.replace(at, text.find('\n', at) - at, "  abs X=w@GRAD -> Out=w@GRAD {op_role: 0}");
  DirectServer server(text, {}, fill_programs);
  server.serve();
  DirectTrainer stays(server, 0, 7);
  DirectTrainer leaves(server, 1, 8);
  for (DirectTrainer* const trainer : {&stays, &leaves}) {
    trainer->hello();
    ASSERT_TRUE(trainer->fetch().ok());
  }
  Floats seen;
  ASSERT_TRUE(stays.send("w@GRAD.trainer_0", floats({-2, 1})).ok());
  ASSERT_TRUE(leaves.send("w@GRAD.trainer_1", floats({-4, 1})).ok());
  ASSERT_TRUE(stays.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(8 - 3, 16 - 1));
  ASSERT_TRUE(leaves.fetch().ok());
  ASSERT_TRUE(leaves.call(protocol::Complete{}).ok());
  ASSERT_TRUE(stays.send("w@GRAD.trainer_0", floats({-2, 4})).ok());
  ASSERT_TRUE(stays.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(8 - 3 - 1, 16 - 1 - 2));
}

// A server without parameters has an empty block; its trainers make their steps with it.
TEST(ServerPrograms, AServerWithAnEmptyBlockCountsSteps) {
  DirectServer server(R"(# millrace program 1

block 0 {
  persist w: f32(2)

  listen_and_serv X=[] {
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: 1, distributed_mode: 0
  }
}

block 1 parent=0 {
}
)",
                      {}, fill_programs);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  ASSERT_TRUE(trainer.fetch().ok());
  for (int k = 0; k < 3; ++k) {
    ASSERT_TRUE(trainer.call(protocol::SendBarrier{}).ok());
    ASSERT_TRUE(trainer.fetch().ok());
  }
  EXPECT_EQ(trainer.hello().applied, 3);
  ASSERT_TRUE(trainer.call(protocol::Complete{}).ok());
  EXPECT_TRUE(server.end().ok());
}

// Each trainer sends its own copy of a parameter, and nothing else.
TEST(ServerPrograms, AFederatedServerKnowsTheCopiesOfItsTrainers) {
  DirectServer server(R"(# millrace program 1

block 0 {
  persist w: f32(2)
  var w.opti.trainer_0: f32(2)
  var w.opti.trainer_1: f32(2)

  fl_listen_and_serv X=w.opti.trainer_0, w.opti.trainer_1 {
      optimize_blocks: [^1], endpoint: "server", Fanin: 2, sync_mode: true
  }
}

block 1 parent=0 {
  sum X=w.opti.trainer_0, w.opti.trainer_1 -> Out=w {op_role: 0}
  scale X=w -> Out=w {scale: 0.5, op_role: 0}
}
)",
                      {}, fill_programs);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  ASSERT_TRUE(trainer.fetch().ok());
  for (const char* const name : {"w.opti.trainer_0.opti.trainer_0", "w.opti", "v"}) {
    EXPECT_THAT(trainer.send(name, floats({1, 2})).to_string(),
                HasSubstr(fmt::format("does not accept '{}' from trainer 0", name)));
  }
  EXPECT_THAT(trainer.send("w.opti.trainer_1", floats({1, 2})).to_string(),
              HasSubstr("belongs to trainer 1"));
  EXPECT_TRUE(trainer.send("w.opti.trainer_0", floats({1, 2})).ok());
}

// An asynchronous server with a block that computes the rate from the steps of its two trainers.
class RateBlock : public ::testing::Test {
 protected:
  // \param all  what the sum of the counters holds, as it was loaded
  void start(int64_t all, bool continues) {
    ServerOptions options;
    options.continues = continues;
    server_ = std::make_unique<DirectServer>(
        R"(# millrace program 1

block 0 {
  persist w: f32(2)
  persist w@GRAD: f32(2)
  persist rate: f32(1)
  persist steps: i64(1)
  persist steps.trainer_0: i64(1)
  persist steps.trainer_1: i64(1)

  listen_and_serv X=w@GRAD {
      optimize_blocks: [^2, ^1], endpoint: "server", pserver_id: 0, Fanin: 2, distributed_mode: 1,
      grad_to_block_id: ["w@GRAD:1"], sparse_grad_to_param: strings[], lr_decay_block_id: 2
  }
}

block 1 parent=0 {
  sgd Param=w Grad=w@GRAD LearningRate=rate -> ParamOut=w {op_role: 2}
}

block 2 parent=0 {
  var number: f32(1)

  sum X=steps.trainer_0, steps.trainer_1 -> Out=steps {op_role: 16}
  cast X=steps -> Out=number {in_dtype: 3, out_dtype: 5, op_role: 16}
  scale X=number -> Out=rate {scale: 0.5, bias: 1.0, op_role: 16}
}
)",
        options, [&](Scope& scope) {
          fill_programs(scope);
          put_numbers<int64_t>(scope, "steps", DType::kInt64, {all});
          // as a startup program leaves them
          put_numbers<int64_t>(scope, "steps.trainer_0", DType::kInt64, {40});
          put_numbers<int64_t>(scope, "steps.trainer_1", DType::kInt64, {50});
        });
    server_->serve();
    trainer_ = std::make_unique<DirectTrainer>(*server_, 0, 7);
    trainer_->hello();
  }
  int64_t steps() {
    Reply reply;
    EXPECT_TRUE(trainer_->call(protocol::GetNow{.names = {"steps"}}, reply).ok());
    return *reply.values.at(0).get_if<Tensor>()->data<int64_t>();
  }
  float rate() { return trainer_->floats_of(protocol::GetNow{.names = {"rate"}}).at(0); }

  std::unique_ptr<DirectServer> server_;
  std::unique_ptr<DirectTrainer> trainer_;
};

TEST_F(RateBlock, BeginsWithStepZero) {
  start(6, false);
  EXPECT_EQ(rate(), 1);
  ASSERT_TRUE(trainer_->call(protocol::Count{.counter = "steps.trainer_0", .steps = 2}).ok());
  EXPECT_EQ(rate(), 2);
  ASSERT_TRUE(trainer_->call(protocol::Count{.counter = "steps.trainer_1", .steps = 3}).ok());
  EXPECT_EQ(rate(), 3.5F);
  EXPECT_THAT(trainer_->call(protocol::Count{.counter = "w", .steps = 1}).to_string(),
              HasSubstr("counter 'w' must be a single i64, found f32 [2]"));
}

// Step 6 of the loaded job is done, as in a file that one process writes.
TEST_F(RateBlock, ContinuesAfterTheStepsOfAllTrainers) {
  start(6, true);
  EXPECT_EQ(rate(), 4.5F);
  EXPECT_EQ(steps(), 6);
  ASSERT_TRUE(trainer_->call(protocol::Count{.counter = "steps.trainer_1", .steps = 3}).ok());
  EXPECT_EQ(rate(), 6);
  EXPECT_EQ(steps(), 9) << "the number of the last step, which is saved";
}

TEST_F(RateBlock, BeginsWithStepZeroWhereTheSaveHadNoSteps) {
  start(-1, true);
  EXPECT_EQ(rate(), 1);
}

// ---- locks

// Blocks 1 and 2 each have a parameter; both read `rate`, which block 3 writes. All have a local
// var of the same name.
constexpr const char* kGuarded = R"(# millrace program 1

block 0 {
  persist a: f32(2)
  persist b: f32(2)
  persist rate: f32(2)
  persist free: f32(2)
}

block 1 parent=0 {
  var t: f32(2)
  elementwise_mul X=a Y=rate -> Out=t {axis: -1}
  elementwise_sub X=a Y=t -> Out=a {axis: -1}
}

block 2 parent=0 {
  var t: f32(2)
  elementwise_mul X=b Y=rate -> Out=t {axis: -1}
  elementwise_sub X=b Y=t -> Out=b {axis: -1}
}

block 3 parent=0 {
  var t: f32(2)
  scale X=rate -> Out=t {scale: 0.5}
  scale X=t -> Out=rate {scale: 0.5}
}
)";

class Guards : public ::testing::Test {
 protected:
  // How a block locks the var: 0 not, 1 shared, 2 exclusively.
  static int lock_of(const VarGuards& guards, int32_t block, const char* var) {
    for (const VarGuards::Need& need : guards.needs(block))
      if (need.mutex == &guards.of(var)) return need.exclusive ? 2 : 1;
    return 0;
  }
};

TEST_F(Guards, ABlockLocksWhatItUses) {
  const auto program = read_program_bytes(kGuarded, "server", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const VarGuards guards(**program, {1, 2, 3});
  EXPECT_EQ(lock_of(guards, 1, "a"), 2);
  EXPECT_EQ(lock_of(guards, 2, "b"), 2);
  EXPECT_EQ(lock_of(guards, 3, "rate"), 2);
  for (const int32_t block : {1, 2}) EXPECT_EQ(lock_of(guards, block, "rate"), 1) << block;
  // blocks exclude each other only where they share vars of the program
  EXPECT_EQ(lock_of(guards, 1, "b"), 0);
  EXPECT_EQ(lock_of(guards, 2, "a"), 0);
  for (const int32_t block : {1, 2}) EXPECT_EQ(guards.needs(block).size(), 2U) << block;
  EXPECT_EQ(guards.needs(3).size(), 1U);
  for (const int32_t block : {1, 2, 3}) EXPECT_EQ(lock_of(guards, block, "free"), 0) << block;
}

// Blocks that write one var share its lock.
TEST_F(Guards, AVarThatSeveralBlocksWriteHasOneLock) {
  std::string text = kGuarded;
  text.replace(text.find("-> Out=b {"), 8, "-> Out=a");
  const auto program = read_program_bytes(text, "server", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const VarGuards guards(**program, {1, 2, 3});
  EXPECT_EQ(lock_of(guards, 1, "a"), 2);
  EXPECT_EQ(lock_of(guards, 2, "a"), 2);
  EXPECT_EQ(lock_of(guards, 3, "a"), 0);
}

// The vars of sub-blocks count, and each block is looked at once, even if it names itself.
TEST_F(Guards, ABlockLocksWhatItsSubBlocksUse) {
  const auto program = read_program_bytes(R"(# millrace program 1

block 0 {
  persist a: f32(2)
  persist b: f32(2)
  persist condition: bool(1)
}

block 1 parent=0 {
  var scope: step_scopes
  conditional_block Cond=condition Input=a -> Out=b Scope=scope {sub_block: ^2, other_block: ^1, is_scalar_condition: true}
}

block 2 parent=1 {
  scale X=a -> Out=b {scale: 0.5}
}
)",
                                          "server", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const VarGuards guards(**program, {1});
  for (const char* const var : {"a", "b", "condition"})
    EXPECT_EQ(lock_of(guards, 1, var), 2) << var;
}

// ---- threads

// Blocks of a group run at the same time: each waits here until both have begun.
TEST(ServerPrograms, BlocksOfAGroupRunAtTheSameTime) {
  std::string text = sync_server(1);
  text.replace(text.find("[^1]"), 4, "[^1, ^2]");
  text += R"(
block 2 parent=0 {
  scale X=rate -> Out=rate {scale: 1.0, op_role: 0}
}
)";
  const auto program = read_program_bytes(text, "server", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const auto op = find_serve_op(**program);
  ASSERT_TRUE(op.ok());
  ServerOptions options;
  options.threads = 2;
  const auto runtime = executor::make_runtime();
  Scope scope;
  fill_programs(scope);
  const auto core = ServerCore::create(*runtime, **op, scope, options);
  ASSERT_TRUE(core.ok()) << core.status().to_string();
  std::mutex mutex;
  std::condition_variable changed;
  std::set<const ServerBlock*> begun;
  const Status status = (*core)->run_group({1, 2}, [&](ServerBlock& block) -> Status {
    std::unique_lock lock(mutex);
    begun.insert(&block);
    changed.notify_all();
    if (changed.wait_for(lock, std::chrono::seconds(5), [&] { return begun.size() == 2; }))
      return Ok();
    return {StatusCode::kExecution, "the other block has not begun"};
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  const Status single = (*core)->run_group({1}, [&](ServerBlock& /*block*/) -> Status {
    return {StatusCode::kExecution, "fails"};
  });
  EXPECT_EQ(single.message(), "fails");
}

}  // namespace
}  // namespace millrace::ps
