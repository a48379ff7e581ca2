// Snapshots of several servers are joined into whole variables: slices by their offsets, of the
// newest step that all servers have; a gap or a server without a snapshot is an error. They are
// resharded for any other number of servers, bit by bit the same.
#include <filesystem>

#include <gmock/gmock.h>

#include "io/checkpoint/folder.h"
#include "io/checkpoint/folder_lock.h"
#include "jobs/checkpoint/servers.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"
#include "tools/checkpoint/options.h"
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
        transpiler::DistributedVar alike;  // beta powers: on both servers
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

  // Snapshot number `number` of a server that has applied that many steps; values begin at `first`.
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
    state.add("_generated_var_1", moment);  // a temporary of an update, as large as the slice
    state.add("beta", beta);
    state.add("learning_rate_0", rate);
    state.add_record("calls", calls);
    ASSERT_EQ(
        outcome(io::save_checkpoint(state, folder_ / ("server-" + std::to_string(server)), number)),
        "ok");
  }
  StatusOr<std::unique_ptr<jobs::TensorSource>> open(int64_t step = -1) {
    jobs::SourceOptions options;
    options.step = step;
    options.slices = slices();
    return jobs::open_source(options, folder_.path());
  }

  TempFolder folder_;
  Tool tool_{{.name = "checkpoint", .purpose = {}, .examples = {}, .exit_codes = {}, .notes = {}}};
};

// Powers of beta, for example, which a server moves only in steps in which it has rows.
TEST_F(CheckpointServers, TellsOfNumbersThatDifferFromServerToServer) {
  std::string said;
  const auto convert = [&](int64_t number, float first) {
    save(0, number, 10 * number, 0);
    save(1, number, 10 * number, first);
    jobs::SourceOptions options;
    options.slices = slices();
    options.log = [&](LogLevel level, std::string_view text) {
      if (level == LogLevel::kWarning) said += text;
    };
    const auto source = jobs::open_source(options, folder_.path());
    return outcome(source.ok() ? Ok() : source.status());
  };
  EXPECT_EQ(convert(1, 0), "ok");
  EXPECT_EQ(said, "");
  EXPECT_EQ(convert(2, 5), "ok");
  EXPECT_THAT(said, HasSubstr("'beta' of server 1 is another one than that of server 0"));
}

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

TEST_F(CheckpointServers, JoinsTheStepThatIsAskedFor) {
  for (const int64_t server : {0, 1}) {
    save(server, 1, 10, 0);
    save(server, 2, 20, 1000);
  }
  save(0, 3, 30, 2000);
  for (const auto& [step, first] : {std::pair(10, 0.0F), {20, 1000.0F}, {-1, 1000.0F}}) {
    const auto source = open(step);
    ASSERT_EQ(outcome(source.ok() ? Ok() : source.status()), "ok");
    EXPECT_TRUE(same_bits(*(*source)->load("w")->get_if<Tensor>(),
                          *counting(kDims, first).get_if<Tensor>()))
        << step;
  }
  EXPECT_EQ(open(30).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(outcome(open(30).status()),
              HasSubstr("not every server has a snapshot of step 30; common steps: [10, 20]"));
}

TEST_F(CheckpointServers, StepsThatDoNotMeetAreNamed) {
  save(0, 1, 10, 0);
  save(1, 1, 11, 0);
  EXPECT_THAT(outcome(open().status()), HasSubstr("their newest are of steps 10, 11"));
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
              HasSubstr("the slices of 'w' have 12 elements, expected 20"));
  ASSERT_EQ(outcome(io::save_checkpoint(state, folder_ / "server-0", 2)), "ok");
  std::filesystem::remove_all(folder_ / "server-0/step-1");
  EXPECT_THAT(outcome(open().status()), HasSubstr("'beta' is on b:1, but is in no snapshot"));
}

TEST_F(CheckpointServers, SnapshotsOfAnotherDistributionAreRefused) {
  for (const int64_t server : {0, 1}) {
    io::LocalState state;
    state.add_record("calls", "millrace.ps.calls 1 10 0\n");
    const std::string identity = fmt::format("mode sync\nplan: server {} of 3\n", server);
    state.add_record("identity", identity);
    ASSERT_EQ(
        outcome(io::save_checkpoint(state, folder_ / ("server-" + std::to_string(server)), 1)),
        "ok");
  }
  EXPECT_THAT(outcome(open().status()),
              HasSubstr("the snapshot was made for the servers of another job: "));
}

// ---- other numbers of servers

constexpr int64_t kRows = 19;

transpiler::VarFacts facts_of(const std::string& name, std::vector<int64_t> shape) {
  transpiler::VarFacts facts;
  facts.name = name;
  facts.shape = std::move(shape);
  facts.persistable = true;
  return facts;
}

// A job of n servers: w and its moment sliced by rows, a norm that is listed as whole but sliced
// like w, a beta power on all servers, and a table whose row r is on server r mod n.
class JobOfServers {
 public:
  JobOfServers(const TempFolder& folder, int64_t servers) : servers_(servers) {
    slices_ = folder / ("slices" + std::to_string(servers));
    root_ = folder / ("snapshots" + std::to_string(servers));
    transpiler::ProgramProperties properties;
    properties.is_distributed = true;
    properties.distributed_lookup_table = "table";
    transpiler::VarsDistributed overview;
    for (int64_t n = 0; n < servers; ++n) {
      const std::string endpoint = "s:" + std::to_string(n);
      properties.endpoints.push_back(endpoint);
      const auto add = [&](const char* name, const std::string& slice, std::vector<int64_t> whole,
                           std::vector<int64_t> shape, int64_t offset, bool is_slice) {
        transpiler::DistributedVar var;
        var.origin = facts_of(name, std::move(whole));
        var.slice = facts_of(slice, std::move(shape));
        var.is_slice = is_slice;
        var.block_id = is_slice ? n : 0;
        var.offset = offset;
        var.vtype = name == std::string("w") ? "Param" : "Optimizer";
        var.endpoint = endpoint;
        overview.add_distributed_var(var);
      };
      const io::Box box = part(n);
      const bool cut = servers > 1;
      add("beta", "beta", {1}, {1}, 0, false);
      if (box.numel() == 0) continue;
      const std::vector<int64_t> shape = {box.shape[0], 3};
      add("w", cut ? "w.block" + std::to_string(n) : "w", {kRows, 3}, shape, box.offset[0] * 3,
          cut);
      add("moment", "moment", {kRows, 3}, shape, box.offset[0] * 3, cut);
      add("w_mean", "w_mean", {kRows, 3}, {kRows, 3}, 0, false);
    }
    testing::put_file(slices_, transpiler::slices_json(properties, overview));
  }

  [[nodiscard]] io::Box part(int64_t n) const { return io::even_part({kRows, 3}, 0, n, servers_); }
  [[nodiscard]] const std::string& slices() const { return slices_; }
  [[nodiscard]] const std::string& root() const { return root_; }

  void save() const {
    io::CheckpointSaveOptions options;
    options.sync = false;
    options.block_bytes = 16;
    for (int64_t n = 0; n < servers_; ++n) {
      const io::Box box = part(n);
      const Value w = counting_part({kRows, 3}, box);
      const Value moment = counting_part({kRows, 3}, box, 100);
      const Value norm = counting_part({kRows, 3}, box, 200);
      const Value beta = counting({1}, 0.5F);
      const Value steps = counting({1}, 12);
      Value table;
      auto& rows = table.as<SelectedRows>();
      rows.height = kRows;
      for (int64_t row = n; row < kRows; row += servers_) rows.rows.push_back(row);
      const auto count = static_cast<int64_t>(rows.rows.size());
      ASSERT_TRUE(rows.value.resize(DType::kFloat32, {count, 2}).ok());
      for (int64_t i = 0; i < 2 * count; ++i)
        rows.value.data<float>()[i] =
            static_cast<float>(rows.rows[static_cast<size_t>(i / 2)] * 2 + i % 2);
      io::LocalState state;
      if (box.numel() > 0) {
        state.add(servers_ > 1 ? "w.block" + std::to_string(n) : "w", w);
        state.add("moment", moment);
        state.add("w_mean", norm);
      }
      state.add("beta", beta);
      state.add("steps", steps);
      state.add("table", table);
      state.add_record("calls", "millrace.ps.calls 1 7 0\n");
      ASSERT_EQ(
          outcome(io::save_checkpoint(state, root_ + "/server-" + std::to_string(n), 7, options)),
          "ok");
    }
  }

  // The required contents of a snapshot of this job, however it was made.
  static void expect_whole(const StatusOr<std::unique_ptr<jobs::TensorSource>>& source) {
    ASSERT_EQ(outcome(source.ok() ? Ok() : source.status()), "ok");
    EXPECT_THAT((*source)->names(), ElementsAre("beta", "moment", "steps", "table", "w", "w_mean"));
    const auto same = [&](const char* name, const Value& expected) {
      const auto value = (*source)->load(name);
      ASSERT_EQ(outcome(value), "ok");
      ASSERT_NE(value->get_if<Tensor>(), nullptr) << name;
      EXPECT_TRUE(same_bits(*value->get_if<Tensor>(), *expected.get_if<Tensor>())) << name;
    };
    same("w", counting({kRows, 3}));
    same("moment", counting({kRows, 3}, 100));
    same("w_mean", counting({kRows, 3}, 200));
    same("table", counting({kRows, 2}));
    same("beta", counting({1}, 0.5F));
    same("steps", counting({1}, 12));
  }

 private:
  int64_t servers_;
  std::string slices_;
  std::string root_;
};

class ReshardServers : public ::testing::Test {
 protected:
  [[nodiscard]] std::string reshard(const JobOfServers& from, const JobOfServers& to,
                                    const std::string& folder, Replace replace = Replace::kNo) {
    const auto snapshots = jobs::ServerSnapshots::open(from.root(), from.slices(), {});
    const auto slices = jobs::read_slices_of_servers(to.slices(), {});
    if (!snapshots.ok() || !slices.ok()) return outcome(snapshots) + outcome(slices);
    io::CheckpointSaveOptions options;
    options.sync = false;
    options.replace = replace;
    return outcome(jobs::reshard_snapshots(*snapshots, *slices, {}, folder, 64, options));
  }

  TempFolder folder_;
  Tool tool_{{.name = "checkpoint", .purpose = {}, .examples = {}, .exit_codes = {}, .notes = {}}};
};

TEST_F(ReshardServers, AnyNumberToAnyNumber) {
  std::vector<std::unique_ptr<JobOfServers>> jobs;
  for (int64_t n = 1; n <= 16; ++n) jobs.push_back(std::make_unique<JobOfServers>(folder_, n));
  for (const auto& from : jobs) {
    from->save();
    JobOfServers::expect_whole(jobs::open_servers(from->root(), from->slices(), {}));
    for (const auto& to : jobs) {
      const std::string out = folder_ / "anew";
      ASSERT_EQ(reshard(*from, *to, out), "ok");
      JobOfServers::expect_whole(jobs::open_servers(out, to->slices(), {}));
      std::filesystem::remove_all(out);
    }
  }
}

TEST_F(ReshardServers, FoldersOfServersAreFound) {
  const JobOfServers three(folder_, 3);
  EXPECT_THAT(jobs::server_folders(three.root()), ::testing::IsEmpty());
  three.save();
  EXPECT_THAT(jobs::server_folders(three.root()),
              ElementsAre(three.root() + "/server-0", three.root() + "/server-1",
                          three.root() + "/server-2"));
}

TEST_F(ReshardServers, WhatDoesNotFitIsSaid) {
  const JobOfServers two(folder_, 2);
  const JobOfServers three(folder_, 3);
  two.save();
  ASSERT_EQ(reshard(two, three, folder_ / "anew"), "ok");
  EXPECT_THAT(reshard(two, three, folder_ / "anew"), HasSubstr("a checkpoint already exists"));
  EXPECT_EQ(reshard(two, three, folder_ / "anew", Replace::kYes), "ok");
  // Only values, so a job with any number of trainers can start from them.
  const auto server = io::Checkpoint::open(folder_ / "anew/server-0/step-7");
  ASSERT_EQ(outcome(server), "ok");
  EXPECT_EQ(*server->load_record("calls"), "millrace.ps.calls 1 0 0\n");
  EXPECT_EQ(server->manifest().user.at("cut_anew_from_step"), "7");

  CheckpointFlags flags;
  flags.command = "reshard";
  flags.paths = {two.root()};
  EXPECT_THAT(outcome(reshard_servers(tool_, flags).status()),
              HasSubstr("need both --slices of the old job and --to-slices"));
  flags.source.slices = two.slices();
  flags.to_slices = three.slices();
  flags.ranks = 3;
  EXPECT_THAT(outcome(reshard_servers(tool_, flags).status()),
              HasSubstr("have no effect on snapshots of servers"));
  // Another job: a variable that was not saved, and one of a different shape.
  transpiler::ProgramProperties properties;
  properties.is_distributed = true;
  properties.endpoints = {"s:0"};
  transpiler::VarsDistributed overview;
  transpiler::DistributedVar var;
  var.origin = var.slice = facts_of("other", {4});
  var.endpoint = "s:0";
  overview.add_distributed_var(var);
  testing::put_file(three.slices(), transpiler::slices_json(properties, overview));
  EXPECT_THAT(reshard(two, three, folder_ / "b"),
              HasSubstr("'other': the snapshots do not have the var"));
  transpiler::VarsDistributed wider;
  var.origin = var.slice = facts_of("w", {kRows, 4});
  wider.add_distributed_var(var);
  testing::put_file(three.slices(), transpiler::slices_json(properties, wider));
  EXPECT_THAT(reshard(two, three, folder_ / "b"),
              HasSubstr("'w': expected f32 [19, 4], found f32 [19, 3] in the snapshots"));
}

// The tool would remove what a running server needs, or swap the folder under it.
TEST_F(ReshardServers, FoldersOfARunningServerAreRefused) {
  const JobOfServers two(folder_, 2);
  const JobOfServers three(folder_, 3);
  two.save();
  three.save();
  const auto held = io::FolderLock::take(three.root() + "/server-1", "server 1 at a:1");
  ASSERT_EQ(outcome(held.ok() ? Ok() : held.status()), "ok");
  CheckpointFlags flags;
  flags.paths = {three.root()};
  flags.keep = 1;
  EXPECT_THAT(outcome(checkpoint_gc(tool_, flags).status()), HasSubstr("server 1 at a:1"));
  const auto used = io::lock_used_in(three.root(), "test");
  EXPECT_THAT(outcome(used.ok() ? Ok() : used.status()), HasSubstr("server 1 at a:1"));
  EXPECT_TRUE(io::lock_used_in(two.root(), "test").ok());
}

}  // namespace
}  // namespace millrace::tools
