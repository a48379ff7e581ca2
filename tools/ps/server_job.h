#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "fleet/runtime/fleet_server.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/ops/serve_ops.h"
#include "ps/table/table_handler.h"
#include "ps/table/typed_table.h"
#include "tools/common/tool.h"
#include "tools/ps/flags.h"

namespace millrace::tools {

/// One parameter server: its programs, and the values it holds. If `transpile-program --fleet`
/// wrote the program, the program is empty, and the server holds the tables of its description.
class ServerJob {
 public:
  /// The input files.
  struct Files {
    std::string program;
    std::string startup;  ///< may be empty
    std::string slices;   ///< may be empty if there are no params
    std::string
        params;  ///< whole variables: npz, or a folder with one file per variable; may be empty
    std::string load_program = {};  ///< run after the startup program (io_load); may be empty
  };
  /// Reads programs, runs the startup program, loads slices, and compiles.
  /// Errors: those of readers, the startup program and compilation.
  static StatusOr<std::unique_ptr<ServerJob>> open(const Tool& tool, const Files& files,
                                                   const PsFlags& flags, int threads,
                                                   std::shared_ptr<ps::Transport> transport,
                                                   const std::string& files_root);
  /// Sets a callback that receives the endpoint at which the server listens.
  void on_ready(std::function<void(const std::string&)> told);
  /// Makes the server publish its metrics there; metrics must outlive the job.
  void publish_to(ps::Metrics& metrics);
  /// Serves until all trainers have completed.
  Status serve();
  /// Ends serve(). Thread-safety: any thread.
  void stop();

 private:
  ServerJob() = default;
  Status open_fleet(const Tool& tool, const Files& files, const PsFlags& flags,
                    ps::ServerOptions options, std::shared_ptr<ps::Transport> transport);
  Status load_fleet(const Files& files);
  Status fill_tables(const executor::NamedValues& whole, ps::TableHandler& tables);
  Status make_tables(const Files& files, ps::ServerOptions& options);
  Status load(const Tool& tool, const Files& files, const ops::OpRegistry& registry,
              const executor::Executor& executor);

  std::string name_;
  std::unique_ptr<ps::TableHandler> tables_;  ///< null: there are no typed tables
  std::vector<ps::TypedTable> typed_;
  size_t server_ = 0;  ///< index of this server
  std::shared_ptr<ps::ServerRole> role_;
  std::unique_ptr<Program> program_;
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> prepared_;
  // of a fleet job
  std::unique_ptr<fleet::FleetServer> fleet_;  ///< null: it is not a fleet job
  std::shared_ptr<ps::Transport> transport_;
  std::string endpoint_;
  std::function<void(const std::string&)> ready_;
};

/// Path of the slices.json of a job: `named` if it is not empty, otherwise the one in the parent of
/// the program's folder.
std::string find_slices(const std::string& named, const std::string& program);

}  // namespace millrace::tools
