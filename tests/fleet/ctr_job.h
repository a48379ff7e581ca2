#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/fleet.h"
#include "framework/read_program.h"
#include "ops/registry.h"
#include "ps/transport/socket.h"
#include "ps/transport/tcp.h"

/// A job of the fleet API for tests: two slots of one embedding and four dense features; it learns
/// clicks.
namespace millrace::fleet::ctr_job {

inline void check(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.to_string();
}

inline constexpr const char* kFolder = "tests/data/fleet/ctr_sync_sgd/";

inline std::unique_ptr<Program> program_of(const std::string& name) {
  auto program = read_program(kFolder + name, {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

// Free ports; another process could take one before it is used.
inline std::vector<std::string> free_endpoints(int count) {
  std::vector<ps::Socket> held;
  std::vector<std::string> endpoints;
  for (int i = 0; i < count; ++i) {
    auto socket = ps::Socket::listen({.host = "127.0.0.1", .port = 0});
    EXPECT_TRUE(socket.ok());
    endpoints.push_back("127.0.0.1:" + std::to_string(socket->port()));
    held.push_back(std::move(*socket));
  }
  return endpoints;
}

inline RoleMaker role_of(Role role, int id, const std::vector<std::string>& servers,
                         int workers = 2) {
  auto made = user_defined_role({.current_id = id,
                                 .role = role,
                                 .worker_num = workers,
                                 .server_endpoints = servers,
                                 .worker_endpoints = {}});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *std::move(made);
}

inline std::string loss_name() {
  return program_of("origin_main.pb")->root().back().output_names()[0].str();
}

inline DistributedStrategy strategy_of(bool sync) {
  DistributedStrategy strategy;
  strategy.set_a_sync(!sync);
  return strategy;
}

inline std::shared_ptr<ps::Transport> tcp() {
  auto transport = ps::make_tcp_transport({});
  EXPECT_TRUE(transport.ok()) << transport.status().to_string();
  return *std::move(transport);
}

// A process of the job, initialized up to its programs.
inline void prepare(Fleet& fleet, RoleMaker role, const DistributedStrategy& strategy,
                    UpdateMethod method = Sgd{}) {
  check(fleet.init(std::move(role)));
  MinimizeOptions optimizer;
  optimizer.method = std::move(method);
  optimizer.learning_rate = 0.1;
  check(fleet.distributed_optimizer(optimizer, strategy));
  const auto registry = ops::standard_registry();
  const auto main = program_of("origin_main.pb");
  const std::string loss = main->root().back().output_names()[0].str();
  check(fleet.minimize(*registry, *main, *program_of("origin_startup.pb"), loss));
}

inline void prepare(Fleet& fleet, RoleMaker role, bool sync, UpdateMethod method = Sgd{}) {
  prepare(fleet, std::move(role), strategy_of(sync), std::move(method));
}

// Workers have different rows, so that the order in which they push does not matter.
inline executor::NamedValues feeds_of(int worker, int step) {
  executor::NamedValues feeds;
  constexpr int64_t kRows = 8;
  for (const char* const name : {"emb_slot0", "emb_slot1", "label"}) {
    auto& ids = feeds[name].as<Tensor>();
    check(ids.resize(DType::kInt64, {kRows, 1}));
    for (int64_t i = 0; i < kRows; ++i)
      ids.data<int64_t>()[i] = name[0] == 'l' ? i % 2 : (i * 37 + step * 5) % 500 * 2 + worker;
  }
  auto& dense = feeds["dense"].as<Tensor>();
  check(dense.resize(DType::kFloat32, {kRows, 4}));
  for (int64_t i = 0; i < kRows * 4; ++i) dense.data<float>()[i] = (i / 4) % 2 == 0 ? 1.0F : -1.0F;
  return feeds;
}

}  // namespace millrace::fleet::ctr_job
