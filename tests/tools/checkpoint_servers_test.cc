// Snapshots of several servers are joined into whole variables: slices by their offsets, of the
// newest step that all servers have; a gap or a server without snapshot is an error.
#include <gmock/gmock.h>

#include "io/checkpoint/folder.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"
#include "tools/checkpoint/servers.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::tools {
namespace {

using testing::counting;
using testing::counting_part;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::outcome;
using testing::same_bits;
using testing::TempFolder;

const Dims kDims = {5, 4};

class CheckpointServers : public ::testing::Test {
 protected:
  void SetUp() override {
    transpiler::ProgramProperties properties;
    properties.is_distributed = true;
    properties.endpoints = {"a:1", "b:1"};
    transpiler::VarsDistributed overview;
    for (const char* name : {"w", "w_moment"}) {
      for (int64_t server = 0; server < 2; ++server) {
        transpiler::DistributedVar var;
        var.origin = facts(name, {5, 4});
        var.slice =
            facts(name + std::string(".block") + std::to_string(server), {server == 0 ? 3 : 2, 4});
        var.is_slice = true;
        var.block_id = server;
        var.offset = server * 12;
        var.vtype = name == std::string("w") ? "Param" : "Optimizer";
        var.endpoint = properties.endpoints[static_cast<size_t>(server)];
        overview.add_distributed_var(var);
        transpiler::DistributedVar alike;  // beta powers: both servers have them
        alike.origin = alike.slice = facts("beta", {1});
        alike.vtype = "Optimizer";
        alike.endpoint = var.endpoint;
        if (name == std::string("w")) overview.add_distributed_var(alike);
      }
    }
    testing::put_file(slices(), transpiler::slices_json(properties, overview));
  }

  static transpiler::VarFacts facts(const std::string& name, std::vector<int64_t> shape) {
    transpiler::VarFacts facts;
    facts.name = name;
    facts.shape = std::move(shape);
    facts.persistable = true;
    return facts;
  }
  [[nodiscard]] std::string slices() const { return folder_ / "slices.json"; }

  // Snapshot number `number` of a server that has applied so many steps; values begin at `first`.
  void save(int64_t server, int64_t number, int64_t applied, float first) const {
    const io::Box box{{server * 3, 0}, {server == 0 ? 3 : 2, 4}};
    const Value w = counting_part(kDims, box, first);
    const Value moment = counting_part(kDims, box, first + 100);
    const Value beta = counting({1}, first);
    const Value rate = counting({1}, 7);
    const std::string calls = "millrace.ps.calls 1 " + std::to_string(applied) + " 0\n";
    io::LocalState state;
    const std::string block = ".block" + std::to_string(server);
    state.add("w" + block, w);
    state.add("w_moment" + block, moment);
    state.add("w@GRAD" + block, moment);
    state.add("_generated_var_1", moment);  // scratch of an update, as large as the slice
    state.add("beta", beta);
    state.add("learning_rate_0", rate);
    state.add_record("calls", calls);
    ASSERT_EQ(
        outcome(io::save_checkpoint(state, folder_ / ("server-" + std::to_string(server)), number)),
        "ok");
  }
  StatusOr<std::unique_ptr<TensorSource>> open() {
    return open_servers(tool_, folder_.path(), slices());
  }

  TempFolder folder_;
  Tool tool_{{.name = "checkpoint", .purpose = {}, .examples = {}, .exit_codes = {}, .notes = {}}};
};

TEST_F(CheckpointServers, JoinsSlicesOfOneStep) {
  save(0, 1, 10, 0);
  save(0, 2, 20, 1000);
  save(1, 1, 10, 0);
  const auto source = open();
  ASSERT_EQ(outcome(source.ok() ? Ok() : source.status()), "ok");
  EXPECT_THAT((*source)->names(), ElementsAre("beta", "learning_rate_0", "w", "w_moment"));
  EXPECT_TRUE(
      same_bits(*(*source)->load("w")->get_if<Tensor>(), *counting(kDims).get_if<Tensor>()));
  EXPECT_TRUE(same_bits(*(*source)->load("w_moment")->get_if<Tensor>(),
                        *counting(kDims, 100).get_if<Tensor>()));
  EXPECT_EQ((*source)->load("beta")->get_if<Tensor>()->numel(), 1);
}

TEST_F(CheckpointServers, StepsThatDoNotMeetAreNamed) {
  save(0, 1, 10, 0);
  save(1, 1, 11, 0);
  EXPECT_THAT(outcome(open().status()), HasSubstr("the newest are of steps 10, 11"));
}

TEST_F(CheckpointServers, MissingServersAndSlicesAreErrors) {
  save(0, 1, 10, 0);
  EXPECT_EQ(open().status().code(), StatusCode::kNotFound);
  io::LocalState state;
  state.add_record("calls", "millrace.ps.calls 1 10 0\n");
  ASSERT_EQ(outcome(io::save_checkpoint(state, folder_ / "server-1", 1)), "ok");
  const auto source = open();
  ASSERT_EQ(outcome(source.ok() ? Ok() : source.status()), "ok");
  EXPECT_THAT(outcome((*source)->load("w")),
              HasSubstr("'w': expected slices of 20 elements, found 12"));
}

}  // namespace
}  // namespace millrace::tools
