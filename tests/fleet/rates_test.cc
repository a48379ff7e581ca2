// Servers of a fleet job apply gradients as the program's optimizer and its learning rate do.

#include <array>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "fleet/runtime/described_tables.h"
#include "fleet/runtime/fleet_server.h"
#include "ps/transport/inproc.h"
#include "tests/fleet/training_job.h"

namespace millrace::fleet {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRatesNet[2] = {R"(# millrace program 1

block 0 {
  param emb: f32(50, 4)
  param w: f32(4, 3)
  param b: f32(3)
  var ids: i64(-1, 1)
  var e: f32(-1, 4)
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  mul X=e Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)",
                                      R"(# millrace program 1

block 0 {
  persist emb: f32(50, 4)
  persist w: f32(4, 3)
  persist b: f32(3)
  uniform_random -> Out=emb {shape: [50l, 4l], seed: 1, min: -12.5, max: 12.5, dtype: 5}
  uniform_random -> Out=w {shape: [4l, 3l], seed: 2, min: -0.1, max: 0.1, dtype: 5}
  fill_constant -> Out=b {shape: [3l], value: 0.5, dtype: 5}
}
)"};
constexpr const char* kStepped = "learning_rate_0";

executor::NamedValues rate_feeds(int step) {
  executor::NamedValues feeds;
  auto& ids = feeds["ids"].as<Tensor>();
  check_ok(ids.resize(DType::kInt64, {6, 1}));
  for (int64_t i = 0; i < 6; ++i) ids.data<int64_t>()[i] = (i * i + step) % 50;  // some occur twice
  return feeds;
}

float stepped_rate(int step) {
  return 0.05F / static_cast<float>(1 + step);
}

void put_rate(Value& value, float rate) {
  auto& tensor = value.as<Tensor>();
  check_ok(tensor.resize(DType::kFloat32, {1}));
  *tensor.data<float>() = rate;
}

using Params = std::map<std::string, std::vector<float>>;

std::vector<float> floats_of_value(const Value& value) {
  const auto values = value.get_if<Tensor>()->values<float>();
  return {values.begin(), values.end()};
}

Params train_one_process(const TrainingNet& net, int steps, bool stepped) {
  const executor::Executor executor(executor::make_runtime(""), {});
  Scope scope;
  std::vector<Value> none;
  check_ok((*executor.prepare(*net.startup, scope))->run({}, {}, none));
  const auto prepared = executor.prepare(*net.main, scope);
  check_ok(prepared.status());
  for (int step = 0; step < steps; ++step) {
    if (stepped) *scope.find(kStepped)->get_if<Tensor>()->data<float>() = stepped_rate(step);
    check_ok((*prepared)->run(rate_feeds(step), {}, none));
  }
  Params out;
  for (const char* const name : {"emb", "w", "b"}) out[name] = floats_of_value(*scope.find(name));
  return out;
}

JobSpec rates_spec(bool stepped) {
  JobSpec spec;
  spec.strategy.set_a_sync(false);
  spec.servers = {"127.0.0.1:7100", "127.0.0.1:7101"};
  if (stepped) spec.scheduled_rate = kStepped;
  return spec;
}

// One worker and two servers; rows have the same initial values as in the one process.
void train_on_servers(const TrainingNet& net, int steps, bool stepped, Params& out) {
  const auto job = FleetJob::create(*net.main, *net.startup, rates_spec(stepped));
  check_ok(job.status());
  const auto transport = std::make_shared<ps::InprocTransport>();
  std::vector<std::thread> servers;
  for (int i = 0; i < 2; ++i) {
    servers.emplace_back([&, i] {
      const auto role = job->role({true, i});
      check_ok(role.status());
      ServerSetup setup;
      setup.description = role->ps_desc;
      setup.server = i;
      setup.servers = 2;
      const auto server = FleetServer::create(std::move(setup));
      check_ok(server.status());
      check_ok((*server)->serve(*transport, job->spec().servers[static_cast<size_t>(i)]));
    });
  }
  const auto role = job->role({false, 0});
  check_ok(role.status());
  const auto made = FleetWorker::create(worker_setup(*job, *role, 0), transport);
  check_ok(made.status());
  FleetWorker& worker = **made;
  EXPECT_EQ(worker.scheduled_rate(), stepped ? kStepped : "");
  check_ok(worker.start());
  const auto& [id, entry] = *worker.tables()->all().begin();
  std::vector<int64_t> rows(50);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  const std::vector<float> first = train_one_process(net, 0, false).at("emb");
  check_ok(worker.table_client().set_sparse(entry.layout, rows, first));
  std::vector<Value> none;
  for (int step = 0; step < steps; ++step) {
    executor::NamedValues feeds = rate_feeds(step);
    if (stepped && step % 2 == 0) {
      put_rate(feeds[kStepped], stepped_rate(step));
    } else if (stepped) {
      check_ok(worker.set_rate(stepped_rate(step)));
    } else {
      EXPECT_THAT(worker.set_rate(1).message(), HasSubstr("is a constant and cannot be set"));
    }
    check_ok(worker.step(feeds, {}, none));
  }
  EXPECT_EQ(*worker.schedule_step(steps), steps) << "a synchronous worker counts by itself";
  check_ok(worker.wait_for_all());
  const auto gathered = worker.tables()->gather(entry);
  check_ok(gathered.status());
  out["emb"] = floats_of_value(*gathered);
  for (const char* const name : {"w", "b"}) out[name] = floats_of_value(*worker.scope().find(name));
  check_ok(worker.stop());
  for (std::thread& server : servers) server.join();
}

void expect_same(const TrainingNet& net, bool stepped) {
  Params found;
  train_on_servers(net, 6, stepped, found);
  for (const auto& [name, wanted] : train_one_process(net, 6, stepped)) {
    ASSERT_EQ(found[name].size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(found[name][i], wanted[i], 2e-6F * std::max(1.0F, std::abs(wanted[i])))
          << name << " " << i;
  }
}

// Rows beyond 10 show that values are not clipped.
TEST(FleetRates, SgdOnServersIsSgd) {
  expect_same(TrainingNet(kRatesNet, optimizer_of(Sgd{}, 0.05)), false);
}

TEST(FleetRates, ServersFollowARateThatIsStepped) {
  expect_same(TrainingNet(kRatesNet, optimizer_of(Sgd{}, SteppedRate{0.0})), true);
}

// The rate of table 0's servers, and the counter of a worker's schedule.
float rate_on_servers(const std::string& description, FleetWorker& worker) {
  std::array<float, 1> rate{};
  check_ok(worker.table_client().pull_dense(*described_rate_table(description), rate));
  return rate[0];
}
int64_t counted(FleetWorker& worker) {
  return *worker.scope().find("@LR_DECAY_COUNTER@")->get_if<Tensor>()->data<int64_t>();
}

// The original's servers count the steps of all workers (GlobalStepTable).
TEST(FleetRates, AsynchronousWorkersShareTheStepsOfASchedule) {
  const TrainingNet net(kRatesNet, optimizer_of(Sgd{}, Decay(ExponentialDecay{0.8, 1, 0.5})));
  JobSpec spec;
  spec.servers = {"127.0.0.1:7100"};
  spec.workers = 2;
  check_ok(spec.strategy.set_a_sync_configs({{"k_steps", int64_t{0}}}));
  const auto job = FleetJob::create(*net.main, *net.startup, spec);
  check_ok(job.status());
  const auto transport = std::make_shared<ps::InprocTransport>();
  const auto server_role = job->role({true, 0});
  check_ok(server_role.status());
  ServerSetup setup;
  setup.description = server_role->ps_desc;
  setup.workers = 2;
  const auto server = FleetServer::create(std::move(setup));
  check_ok(server.status());
  std::thread serving([&] { check_ok((*server)->serve(*transport, spec.servers[0])); });
  std::vector<RoleOutput> roles;
  std::vector<std::unique_ptr<FleetWorker>> workers;
  for (int i = 0; i < 2; ++i) roles.push_back(*job->role({false, i}));
  std::vector<std::thread> starting;  // worker 1 waits for the values of worker 0
  for (int i = 0; i < 2; ++i) {
    workers.push_back(
        *FleetWorker::create(worker_setup(*job, roles[static_cast<size_t>(i)], i), transport));
    starting.emplace_back([worker = workers.back().get()] { check_ok(worker->start()); });
  }
  for (std::thread& each : starting) each.join();
  const int64_t first = counted(*workers[1]);
  const std::array<int, 6> turns{0, 0, 1, 0, 1, 1};  // whose step it is
  std::vector<Value> none;
  float expected = 0.8F;
  for (size_t step = 0; step < turns.size(); ++step) {
    FleetWorker& worker = *workers[static_cast<size_t>(turns[step])];
    check_ok(worker.step(rate_feeds(static_cast<int>(step)), {}, none));
    EXPECT_EQ(counted(worker), first + static_cast<int64_t>(step) + 1);
    EXPECT_FLOAT_EQ(rate_on_servers(server_role->ps_desc, worker), expected) << step;
    expected *= 0.5F;
  }
  EXPECT_EQ(*workers[0]->schedule_step(0), 6) << "as for a scheduler object";
  EXPECT_EQ(*workers[1]->schedule_step(0), 7);
  for (const auto& worker : workers) check_ok(worker->stop());
  serving.join();
}

TEST(FleetRates, RegularisationAndClippingStayOnTheWorker) {
  MinimizeOptions options = optimizer_of(Sgd{}, 0.05);
  options.parameter_options["w"].regularizer = L2Decay{0.5};
  options.parameter_options["b"].regularizer = L2Decay{0.5};
  expect_same(TrainingNet(kRatesNet, options), false);
}

}  // namespace
}  // namespace millrace::fleet
