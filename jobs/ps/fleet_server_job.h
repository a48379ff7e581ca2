#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fleet/runtime/fleet_server.h"
#include "jobs/ps/server.h"
#include "ps/table/typed_table.h"

namespace millrace::jobs {

/// A server of a job that was written by `transpile-program --fleet`: its program is empty, and it
/// holds the tables of its description.
class FleetServerJob final : public Server {
 public:
  /// Reads the folder, creates the tables and loads their rows.
  /// Errors: kUsage for the folder of a trainer; kUnimplemented for a load program, and for
  /// snapshots and lost trainers in a job that averages dense gradients by all-reduce; those of
  /// read_fleet_role() and FleetServer.
  static StatusOr<std::unique_ptr<FleetServerJob>> open(const Files& files, Settings settings,
                                                        std::shared_ptr<ps::Transport> transport);

  [[nodiscard]] int trainers() const override { return trainers_; }
  void on_ready(std::function<void(const std::string&)> callback) override {
    ready_ = std::move(callback);
  }
  void publish_to(ps::Metrics& metrics) override { server_->publish_to(metrics); }
  Status serve() override { return server_->serve(*transport_, endpoint_, ready_); }
  void stop() override { server_->stop(); }

 private:
  FleetServerJob() = default;
  Status load(const std::string& params, size_t index, const LogSink& log);

  int trainers_ = 1;
  std::unique_ptr<fleet::FleetServer> server_;
  std::vector<ps::TypedTable> typed_;
  std::shared_ptr<ps::Transport> transport_;
  std::string endpoint_;
  std::function<void(const std::string&)> ready_;
};

}  // namespace millrace::jobs
