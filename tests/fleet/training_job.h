#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/job/contexts.h"
#include "fleet/job/fleet_job.h"
#include "fleet/runtime/fleet_worker.h"
#include "fleet/strategy/communicator_flags.h"
#include "framework/read_program.h"
#include "ops/construct/builder.h"
#include "ops/minimize/minimize.h"
#include "ops/registry.h"

/// Helpers of the tests that run fleet jobs.
namespace millrace::fleet {

inline void check_ok(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.to_string();
}

/// A network with its backward part and its optimizers.
struct TrainingNet {
  std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;

  /// \param texts  main program with the var "loss", and startup program, in text form
  TrainingNet(const char* const (&texts)[2], const std::vector<MinimizeOptions>& optimizers) {
    auto body = read_program_bytes(texts[0], "main", {});
    auto first = read_program_bytes(texts[1], "startup", {});
    check_ok(body.status());
    check_ok(first.status());
    main = *std::move(body);
    startup = *std::move(first);
    ops::Builder builder(*registry, *main, *startup);
    for (const MinimizeOptions& optimizer : optimizers)
      check_ok(ops::minimize(builder, "loss", optimizer).status());
  }
  TrainingNet(const char* const (&texts)[2], const MinimizeOptions& optimizer)
      : TrainingNet(texts, std::vector<MinimizeOptions>{optimizer}) {}
};

inline MinimizeOptions optimizer_of(UpdateMethod method, LearningRate rate) {
  MinimizeOptions options;
  options.method = std::move(method);
  options.learning_rate = std::move(rate);
  return options;
}

/// The setup of a worker. `job` and `role` must outlive the worker.
inline WorkerSetup worker_setup(const FleetJob& job, const RoleOutput& role, int worker) {
  WorkerSetup setup;
  setup.main = role.programs.main.get();
  setup.startup = role.programs.startup.get();
  setup.description = role.ps_desc;
  setup.mode = job.mode();
  setup.servers = job.spec().servers;
  setup.worker = worker;
  setup.workers = job.spec().workers;
  setup.send = send_contexts(job.plan(), job.spec().servers, worker);
  setup.dense_tables = dense_receives(job.plan());
  setup.communicator = communicator_flags(job.mode(), job.spec().strategy.a_sync_configs().k_steps,
                                          job.spec().environment);
  setup.client.deadline = std::chrono::seconds(30);
  setup.scheduled_rate = job.spec().scheduled_rate;
  return setup;
}

}  // namespace millrace::fleet
