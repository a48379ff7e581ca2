#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "jobs/ps/server.h"
#include "ps/ops/serve_ops.h"
#include "ps/table/table_handler.h"
#include "ps/table/typed_table.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// A server of a transpiled job: its programs, and the slices of vars that it holds.
class ServerJob final : public Server {
 public:
  /// Reads programs, runs the startup program, loads slices, and compiles.
  /// Errors: those of readers, the startup program and compilation.
  static StatusOr<std::unique_ptr<ServerJob>> open(const Files& files, Settings settings,
                                                   std::shared_ptr<ps::Transport> transport);

  [[nodiscard]] int trainers() const override { return trainers_; }
  void on_ready(std::function<void(const std::string&)> callback) override {
    role_->on_ready(std::move(callback));
  }
  void publish_to(ps::Metrics& metrics) override { role_->publish_to(metrics); }
  Status serve() override;
  void stop() override { role_->stop(); }

 private:
  ServerJob() = default;
  Status make_tables(const Files& files, ps::ServerOptions& options);
  Status read_plan(const Files& files, ps::ServerOptions& options);
  Status run_startup(const Files& files, const ImportOptions& reading,
                     const ops::OpRegistry& registry, const executor::Executor& executor);
  Status load(const Files& files, int threads, const LogSink& log);

  std::string name_;
  int trainers_ = 1;
  std::unique_ptr<ps::TableHandler> tables_;  ///< null: there are no typed tables
  std::vector<ps::TypedTable> typed_;
  size_t server_ = 0;  ///< index of this server among those of the tables
  std::optional<transpiler::SlicesFile> slices_;
  std::shared_ptr<ps::ServerRole> role_;
  std::unique_ptr<Program> program_;
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> prepared_;
};

}  // namespace millrace::jobs
