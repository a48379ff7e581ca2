// More servers than variables: a server that holds nothing takes part in barriers and ends with the
// job; one that does not run is reported within the deadline. In one process and over gRPC.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/ps/connection.h"
#include "jobs/ps/server_job.h"
#include "jobs/ps/trainer_job.h"
#include "ps/client/connect.h"
#include "ps/transport/inproc.h"
#include "tests/io/temp_folder.h"

namespace millrace::jobs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFolder;
using Strings = std::vector<std::string>;

constexpr int kTrainers = 2;
constexpr std::chrono::seconds kPatience(20);

std::string quoted_list(const Strings& words) {
  return fmt::format("[\"{}\"]", fmt::join(words, "\", \""));
}

// The first server has w and the optimizer; the others have an empty block.
std::string server_text(int server, bool sync) {
  const std::string head = fmt::format(
      R"(optimize_blocks: [^1], endpoint: "nowhere:1", pserver_id: {}, Fanin: {},
      distributed_mode: {}, sparse_grad_to_param: strings[])",
      server, kTrainers, sync ? 0 : 1);
  if (server > 0) {
    return fmt::format(R"(# millrace program 1

block 0 {{
  listen_and_serv X=[] {{
      {}, grad_to_block_id: strings[]
  }}
}}

block 1 parent=0 {{
}}
)",
                       head);
  }
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist w: f32(2)
  persist rate: f32(1)
  persist w@GRAD: f32(2)
  var w@GRAD.trainer_0: f32(2)
  var w@GRAD.trainer_1: f32(2)

  listen_and_serv X=w@GRAD.trainer_0, w@GRAD.trainer_1 {{
      {}, grad_to_block_id: ["w@GRAD:1"]
  }}
}}

block 1 parent=0 {{
{}  sgd Param=w Grad=w@GRAD LearningRate=rate -> ParamOut=w {{op_role: 2}}
}}
)",
                     head,
                     sync ? R"(  sum X=w@GRAD.trainer_0, w@GRAD.trainer_1 -> Out=w@GRAD {op_role: 0}
  scale X=w@GRAD -> Out=w@GRAD {scale: 0.5, op_role: 0}
)"
                          : "");
}

constexpr const char* kServerStartup = R"(# millrace program 1

block 0 {
  persist w: f32(2)
  persist rate: f32(1)

  fill_constant -> Out=w {shape: [2l], value: 8.0, dtype: 5}
  fill_constant -> Out=rate {shape: [1l], value: 0.5, dtype: 5}
}
)";

std::string trainer_startup(int trainer, const Strings& servers) {
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist w: f32(2)
  var sent: lod_tensor

  recv -> Out=w {{epmap: ["{0}"], trainer_id: {2}}}
  fetch_barrier -> Out=sent {{endpoints: {1}, trainer_id: {2}}}
}}
)",
                     servers.front(), quoted_list(servers), trainer);
}

std::string trainer_text(int trainer, const Strings& servers, bool sync) {
  const std::string grad = sync ? fmt::format("w@GRAD.trainer_{}", trainer) : "w@GRAD";
  const std::string all = quoted_list(servers);
  const std::string send_barrier = fmt::format(
      "  send_barrier X=sent -> Out=sent {{endpoints: {}, trainer_id: {}, half_async: false}}\n",
      all, trainer);
  const std::string fetch_barrier = fmt::format(
      "  fetch_barrier X=sent -> Out=w {{endpoints: {}, trainer_id: {}}}\n", all, trainer);
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist w: f32(2)
  var {0}: f32(2)
  var sent: lod_tensor

  fill_constant -> Out={0} {{shape: [2l], value: 2.0, dtype: 5}}
  send X={0} -> Out=sent {{epmap: ["{1}"], sections: longs[], send_varnames: strings[]}}
{2}  recv X=sent -> Out=w {{epmap: ["{1}"], recv_varnames: strings[], trainer_id: {4}}}
{3}}}
)",
                     grad, servers.front(), sync ? send_barrier : "", sync ? fetch_barrier : "",
                     trainer);
}

class IdleServers : public ::testing::TestWithParam<const char*> {
 protected:
  ~IdleServers() override {
    for (const auto& server : servers_) server->stop();
    for (std::thread& thread : threads_) thread.join();
  }

  std::shared_ptr<ps::Transport> transport() {
    if (GetParam() == std::string("inproc")) return inproc_;
    auto made = open_transport({}, ignore_log);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return *std::move(made);
  }

  // Opens and runs the given number of servers; waits until they listen.
  void start_servers(int count, bool sync) {
    results_.resize(static_cast<size_t>(count));
    endpoints_.assign(results_.size(), "");
    for (int i = 0; i < count; ++i) {
      const std::string program = folder_ / fmt::format("server_{}", i);
      testing::put_file(program, server_text(i, sync));
      testing::put_file(program + ".startup", kServerStartup);
      Server::Settings settings;
      settings.service.start_timeout = start_timeout_;
      settings.service.silence_timeout = silence_timeout_;
      settings.endpoint =
          GetParam() == std::string("inproc") ? fmt::format("s:{}", i) : "127.0.0.1:0";
      auto job = ServerJob::open({program, i == 0 ? program + ".startup" : "", "", ""},
                                 std::move(settings), transport());
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      (*job)->on_ready([this, i](const std::string& endpoint) {
        const std::lock_guard lock(mutex_);
        endpoints_[static_cast<size_t>(i)] = endpoint;
        changed_.notify_all();
      });
      servers_.push_back(*std::move(job));
    }
    for (size_t i = 0; i < servers_.size(); ++i)
      threads_.emplace_back([this, i] { results_[i] = servers_[i]->serve(); });
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      return std::none_of(endpoints_.begin(), endpoints_.end(),
                          [](const std::string& endpoint) { return endpoint.empty(); });
    }));
  }

  // Trains three steps. \param gathered  receives the final parameter
  Status train(int trainer, const Strings& servers, bool sync, std::vector<float>& param) {
    const std::string program = folder_ / fmt::format("trainer_{}", trainer);
    testing::put_file(program, trainer_text(trainer, servers, sync));
    testing::put_file(program + ".startup", trainer_startup(trainer, servers));
    TrainerJob::Settings settings;
    settings.trainer = trainer;
    settings.client.deadline = deadline_;
    settings.client.reconnect_timeout = std::chrono::seconds(30);
    settings.client.heartbeat = silence_timeout_ / 4;
    MILLRACE_ASSIGN_OR_RETURN(
        const auto job,
        TrainerJob::open({program, program + ".startup", "", ""}, settings, transport()));
    executor::NamedValues results;
    for (int64_t step = 0; step < 3; ++step)
      MILLRACE_RETURN_IF_ERROR(job->step(step, {}, {"w"}, results));
    const auto values = results["w"].get_if<Tensor>()->values<float>();
    param.assign(values.begin(), values.end());
    return job->finish({});
  }

  // All servers end without being stopped.
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  TempFolder folder_;
  std::chrono::milliseconds deadline_ = kPatience;
  std::chrono::milliseconds start_timeout_ = kPatience;
  std::chrono::milliseconds silence_timeout_{0};
  std::shared_ptr<ps::Transport> inproc_ = std::make_shared<ps::InprocTransport>();
  std::mutex mutex_;
  std::condition_variable changed_;
  Strings endpoints_;
  std::vector<std::unique_ptr<ServerJob>> servers_;
  std::vector<std::thread> threads_;
  std::vector<Status> results_;
};

TEST_P(IdleServers, EndWithTheJob) {
  for (const bool sync : {true, false}) {
    SCOPED_TRACE(sync ? "sync" : "async");
    servers_.clear();
    start_servers(5, sync);
    std::array<Status, kTrainers> outcomes;
    std::array<std::vector<float>, kTrainers> params;
    std::vector<std::thread> trainers;
    for (int t = 0; t < kTrainers; ++t) {
      trainers.emplace_back([&, t] {
        const auto i = static_cast<size_t>(t);
        outcomes[i] = train(t, endpoints_, sync, params[i]);
      });
    }
    for (std::thread& thread : trainers) thread.join();
    join();
    for (const Status& status : outcomes) EXPECT_TRUE(status.ok()) << status.to_string();
    for (const Status& status : results_) EXPECT_TRUE(status.ok()) << status.to_string();
    if (!sync) continue;
    EXPECT_THAT(params[0], ElementsAre(5, 5));  // three times 0.5 * 2
    EXPECT_THAT(params[1], ElementsAre(5, 5));
  }
}

TEST_P(IdleServers, OneThatIsMissingIsNamed) {
  deadline_ = std::chrono::milliseconds(700);
  start_timeout_ = std::chrono::milliseconds(4'000);
  silence_timeout_ = std::chrono::milliseconds(1'500);
  start_servers(3, true);
  Strings endpoints = endpoints_;
  endpoints.insert(endpoints.begin() + 1, "127.0.0.1:1");
  std::vector<float> param;
  const auto begin = std::chrono::steady_clock::now();
  const Status status = train(0, endpoints, true, param);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(),
              HasSubstr("trainer 0 could not connect to 1 of 4 servers: 127.0.0.1:1"));
  // the servers detect it, and report which trainer is missing
  join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  for (const Status& result : results_) {
    EXPECT_EQ(result.code(), StatusCode::kDistributed);
    EXPECT_THAT(result.to_string(), HasSubstr("trainer 0 (last heard"));
  }
}

TEST_P(IdleServers, WhoIsWaitedForIsSaidMeanwhile) {
  start_servers(2, true);
  ps::Client client(transport(),
                    {.job = "", .trainer = 1, .deadline = std::chrono::milliseconds(600)});
  Strings lines;
  const Status status = ps::connect_to_servers(
      client, {endpoints_[0], "127.0.0.1:1", endpoints_[1]}, std::chrono::milliseconds(200),
      [&](const std::string& line) { lines.push_back(line); });
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.front(),
              AllOf(HasSubstr("trainer 1 has waited 0 s for 1 of 3 servers: 127.0.0.1:1"),
                    Not(HasSubstr(endpoints_[0]))));
  EXPECT_THAT(client.endpoints(), ::testing::SizeIs(3));
}

INSTANTIATE_TEST_SUITE_P(Transports, IdleServers, ::testing::Values("inproc", "grpc"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace millrace::jobs
