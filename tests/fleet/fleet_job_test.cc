// Programs and descriptions of a fleet job equal those of the original.

#include "fleet/job/fleet_job.h"

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fleet/job/common_accessor.h"
#include "framework/diff/diff.h"
#include "framework/read_program.h"
#include "ops/construct/builder.h"
#include "ops/minimize/minimize.h"
#include "ops/registry.h"
#include "proto/fleet_desc.pb.h"
#include "transpiler/distribute/table_plan.h"
#include "transpiler/fleet/fleet_programs.h"

namespace millrace::fleet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::unique_ptr<Program> program_of_fleet_job(const std::string& path) {
  auto program = read_program(path, {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

struct Case {
  std::string name;
  UpdateMethod method;
  double rate;
  std::function<void(DistributedStrategy&)> set;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

void check_fleet_job(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.to_string();
}

// A forward program of tests/data/fleet, turned into a training program.
class Training {
 public:
  Training(const std::string& folder, UpdateMethod method, LearningRate rate)
      : registry_(ops::standard_registry()),
        main_(program_of_fleet_job(folder + "/origin_main.pb")),
        startup_(program_of_fleet_job(folder + "/origin_startup.pb")) {
    ops::Builder builder(*registry_, *main_, *startup_);
    MinimizeOptions options;
    options.method = std::move(method);
    options.learning_rate = std::move(rate);
    const std::string loss = main_->root().back().output_names()[0].str();
    check_fleet_job(ops::minimize(builder, loss, options).status());
  }

  [[nodiscard]] StatusOr<FleetJob> job(JobSpec spec) const {
    return FleetJob::create(*main_, *startup_, std::move(spec));
  }
  [[nodiscard]] Program& main() const { return *main_; }

 private:
  std::unique_ptr<ops::OpRegistry> registry_;
  std::unique_ptr<Program> main_;
  std::unique_ptr<Program> startup_;
};

JobSpec two_by_two() {
  JobSpec spec;
  spec.servers = {"127.0.0.1:36011", "127.0.0.1:36012"};
  spec.workers = 2;
  return spec;
}

void expect_same_program(const Program& made, const std::string& path) {
  DiffOptions options;
  options.ignore_attrs = {"program_id"};
  for (const Difference& difference : diff_programs(*program_of_fleet_job(path), made, options))
    ADD_FAILURE() << path << ": " << difference.to_string();
}

void expect_same_description(const std::string& made, const std::string& path) {
  fleet_desc::PSParameter wanted;
  fleet_desc::PSParameter found;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(bytes_of(path), &wanted));
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(made, &found));
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(wanted, found)) << path << ":\n" << differences;
}

class FleetGoldens : public ::testing::TestWithParam<Case> {};

TEST_P(FleetGoldens, WorkersAndServers) {
  const Case& one = GetParam();
  const std::string folder = "tests/data/fleet/" + one.name;
  const Training training(folder, one.method, one.rate);
  JobSpec spec = two_by_two();
  one.set(spec.strategy);
  const auto job = training.job(std::move(spec));
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  for (const JobRole role : {JobRole{false, 0}, JobRole{true, 1}}) {
    const std::string files = folder + (role.is_server ? "/server1/" : "/worker0/");
    const auto made = job->role(role);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    expect_same_program(*made->programs.main, files + "main.pb");
    if (!role.is_server) expect_same_program(*made->programs.startup, files + "startup.pb");
    expect_same_description(made->ps_desc, files + "ps_desc.txt");
    EXPECT_EQ(nlohmann::json::parse(made->runtime),
              nlohmann::json::parse(bytes_of(files + "runtime.json")));
  }
}

void use_accessor(DistributedStrategy& strategy) {
  strategy.set_a_sync(true);
  check_fleet_job(
      strategy.set_table_configs("emb", {{"sparse_accessor_class", "DownpourCtrAccessor"},
                                         {"sparse_shard_num", int64_t{100}},
                                         {"sparse_embedx_dim", int64_t{8}},
                                         {"sparse_optimizer", "adagrad"},
                                         {"sparse_learning_rate", 0.05}}));
}

void use_geo(DistributedStrategy& strategy) {
  strategy.set_a_sync(true);
  check_fleet_job(strategy.set_a_sync_configs({{"k_steps", int64_t{100}}}));
}

INSTANTIATE_TEST_SUITE_P(Cases, FleetGoldens,
                         ::testing::Values(Case{"ctr_sync_sgd", Sgd{}, 0.01,
                                                [](DistributedStrategy& strategy) {
                                                  strategy.set_a_sync(false);
                                                }},
                                           Case{"ctr_geo_k100", Sgd{}, 0.01, use_geo},
                                           Case{"ctr_accessor_async", Adam{}, 0.001, use_accessor}),
                         [](const auto& one) { return one.param.name; });

const char* const kModel = "tests/data/fleet/ctr_sync_sgd";

JobSpec synchronous() {
  JobSpec spec = two_by_two();
  spec.strategy.set_a_sync(false);
  return spec;
}

// The error of creating a worker of a job.
std::string refusal(const Training& training, JobSpec spec) {
  const auto job = training.job(std::move(spec));
  if (!job.ok()) return job.status().message();
  const auto made = job->role({false, 0});
  return made.ok() ? "made" : made.status().message();
}

TEST(FleetJob, RefusesWhatItCannotDo) {
  const Training training(kModel, Sgd{}, 0.01);
  JobSpec spec = synchronous();
  spec.servers.clear();
  EXPECT_EQ(refusal(training, spec), "a fleet job needs at least one server");
  spec = synchronous();
  spec.workers = 0;
  EXPECT_THAT(refusal(training, spec), HasSubstr("at least one worker (found 0)"));
  spec = synchronous();
  spec.servers[1] = spec.servers[0];
  EXPECT_THAT(refusal(training, spec), HasSubstr("'127.0.0.1:36011' occurs twice"));
  spec = synchronous();
  check_fleet_job(spec.strategy.set_a_sync_configs({{"use_ps_gpu", int64_t{1}}}));
  EXPECT_THAT(refusal(training, spec), HasSubstr("use_ps_gpu"));
  for (const char* const key : {"local_sparse", "remote_sparse"}) {
    spec = synchronous();
    check_fleet_job(spec.strategy.set_trainer_desc_configs({{key, std::vector<std::string>{"x"}}}));
    EXPECT_THAT(refusal(training, spec), HasSubstr("federated tables"));
  }
  spec = synchronous();
  check_fleet_job(spec.strategy.set_a_sync_configs({{"k_steps", int64_t{3}}}));
  EXPECT_THAT(refusal(training, spec), HasSubstr("a_sync=false with a_sync_configs.k_steps=3"));
  spec = synchronous();
  spec.environment = [](const std::string& name) {
    return name == "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST" ? std::optional<std::string>("h:1")
                                                           : std::nullopt;
  };
  EXPECT_THAT(refusal(training, spec), HasSubstr("there is nothing for heter workers"));
  spec.heter.endpoints = {"h:2"};
  EXPECT_THAT(refusal(training, spec),
              HasSubstr("has the heter workers 'h:2', but PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST is "
                        "'h:1'"));
  spec = synchronous();
  check_fleet_job(spec.strategy.set_table_configs("emb", {}));
  EXPECT_THAT(refusal(training, spec), HasSubstr("has fea_dim 11, expected 8"));
}

TEST(FleetJob, OtherOptimizersNeedALeave) {
  const Training training(kModel, Momentum{.momentum = 0.5}, 0.25);
  EXPECT_THAT(refusal(training, synchronous()),
              HasSubstr("is updated by 'momentum', but tables of servers have sgd and adam only"));
  JobSpec spec = synchronous();
  spec.strategy.set_a_sync(true);
  EXPECT_THAT(refusal(training, spec), HasSubstr("sgd and adam only"));
  spec.strategy.set_all_optimizers(true);
  EXPECT_EQ(refusal(training, spec), "made");
}

// Programs of the original have such lookups if a layer is sparse but has no remote_prefetch.
TEST(FleetJob, RefusesLookupsWhoseRowsNoProcessHas) {
  const Training training(kModel, Sgd{}, 0.01);
  JobSpec geo = two_by_two();
  use_geo(geo.strategy);
  const auto set = [&](const char* attr, bool value) {
    for (Op& op : training.main().root().ops()) {
      if (transpiler::is_lookup(op)) op.set_bool(attr, value);
    }
  };
  set("remote_prefetch", false);
  EXPECT_THAT(refusal(training, synchronous()),
              HasSubstr("'lookup_table_v2' looks up 'emb' with is_sparse, but without "
                        "remote_prefetch: neither workers nor servers would have its rows"));
  EXPECT_EQ(refusal(training, geo), "made");
  set("is_distributed", true);
  const auto role = training.job(synchronous())->role({false, 0});
  ASSERT_TRUE(role.ok()) << role.status().to_string();
  EXPECT_THAT(role->programs.remarks,
              Contains(HasSubstr("the job will not run: 'lookup_table_v2' looks up 'emb' with "
                                 "is_distributed, but without remote_prefetch")));
  set("remote_prefetch", true);
  set("is_sparse", false);
  EXPECT_THAT(refusal(training, geo), HasSubstr("with remote_prefetch, but without is_sparse"));
}

// As in the original, whose ops take such parameters only in some updates.
TEST(FleetJob, GeoUpdatesOfDeclaredRowsNeedALeave) {
  const Training training(kModel, Adagrad{}, 0.01);
  Var* const emb = training.main().root().find_var("emb");
  VarSpec spec = emb->spec();
  spec.kind = VarKind::kSelectedRows;
  emb->set_spec(std::move(spec));
  JobSpec geo = two_by_two();
  use_geo(geo.strategy);
  EXPECT_THAT(refusal(training, geo),
              HasSubstr("'emb' is declared as rows and updated by 'adagrad' on the workers"));
  geo.strategy.set_all_optimizers(true);
  EXPECT_EQ(refusal(training, geo), "made");
}

TEST(FleetJob, WarnsOfOtherNumbersOfEndpoints) {
  JobSpec spec = synchronous();
  spec.worker_endpoints = {"127.0.0.1:36021"};
  const auto role = Training(kModel, Sgd{}, 0.01).job(std::move(spec))->role({false, 1});
  ASSERT_TRUE(role.ok()) << role.status().to_string();
  EXPECT_THAT(role->programs.remarks,
              Contains("the job has 2 workers, although 1 endpoints of workers are given"));
}

TEST(FleetJob, DescriptionsNameOtherOptimizers) {
  JobSpec spec = synchronous();
  spec.strategy.set_all_optimizers(true);
  EXPECT_THAT(refusal(Training(kModel, LarsMomentum{}, 0.01), spec),
              HasSubstr("'emb' is updated by 'lars_momentum', but tables of servers have sgd, "));
  JobSpec geo = two_by_two();
  use_geo(geo.strategy);
  EXPECT_EQ(refusal(Training(kModel, Adagrad{}, 0.01), geo), "made");
  const Training training(kModel, Momentum{.momentum = 0.5}, 0.25);
  const auto job = training.job(spec);
  ASSERT_TRUE(job.ok());
  const auto server = job->role({true, 0});
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  EXPECT_THAT(server->ps_desc, HasSubstr("name: \"momentum\""));
  EXPECT_THAT(server->ps_desc, HasSubstr("params: \"Velocity\""));
  EXPECT_THAT(server->ps_desc, HasSubstr("#mu&0.5#use_nesterov&0"));
  EXPECT_THAT(server->ps_desc, Not(HasSubstr("update_ranges")));
}

TEST(FleetJob, WorkersComputeTheRateOfASchedule) {
  const Training training(kModel, Sgd{}, Decay(ExponentialDecay{0.1, 10, 0.9}));
  const auto job = training.job(synchronous());
  ASSERT_TRUE(job.ok());
  const auto made = job->role({false, 0});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Block& main = made->programs.main->root();
  EXPECT_TRUE(main.has_writers(transpiler::kComputedRate));
  EXPECT_TRUE(main.has_writers("@LR_DECAY_COUNTER@"));
  EXPECT_THAT(made->ps_desc, HasSubstr("fill_constant&1.0"));
}

TEST(FleetJob, WorkersKeepARateThatIsStepped) {
  const Training training(kModel, Sgd{}, SteppedRate{0.5});
  JobSpec spec = synchronous();
  spec.scheduled_rate = "learning_rate_0";
  const auto job = training.job(std::move(spec));
  ASSERT_TRUE(job.ok());
  const auto made = job->role({false, 1});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_NE(made->programs.main->root().find_var("learning_rate_0"), nullptr);
  EXPECT_THAT(made->ps_desc, HasSubstr("fill_constant&0.5"));
}

TEST(FleetJob, RolesBeyondTheJobAreErrors) {
  const Training training(kModel, Sgd{}, 0.01);
  const auto job = training.job(synchronous());
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->role({true, 2}).status().message(), "server 2 of 2: expected a smaller number");
  EXPECT_EQ(job->role({false, -1}).status().message(), "worker -1 of 2: expected a smaller number");
}

TEST(PythonNumber, IsTheShortestDecimalOfTheDouble) {
  EXPECT_EQ(python_number(0), "0.0");
  EXPECT_EQ(python_number(-1), "-1.0");
  EXPECT_EQ(python_number(0.9F), "0.8999999761581421");
  EXPECT_EQ(python_number(1e-8F), "9.99999993922529e-09");
  EXPECT_EQ(python_number(0.5F), "0.5");
  EXPECT_EQ(python_number(1e16F), "1.0000000272564224e+16");
}

}  // namespace
}  // namespace millrace::fleet
