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

/// One parameter server: its programs, and the values it holds. Where `transpile-program --fleet`
/// has written the program, which is empty, the tables of its description.
class ServerJob {
 public:
  /// Where everything comes from.
  struct Files {
    std::string program;
    std::string startup;  ///< may be empty
    std::string slices;   ///< may be empty if there are no params
    std::string params;   ///< whole variables: npz, or a folder of one file a var; may be empty
    std::string load_program = {};  ///< run behind the startup program (io_load); may be empty
  };
  /// Reads programs, runs the startup program, loads slices, and compiles.
  /// Errors: those of readers, the startup program and compilation.
  static StatusOr<std::unique_ptr<ServerJob>> open(const Tool& tool, const Files& files,
                                                   const PsFlags& flags, int threads,
                                                   std::shared_ptr<ps::Transport> transport,
                                                   const std::string& files_root);
  /// Is told where the server listens.
  void on_ready(std::function<void(const std::string&)> told);
  /// Lets the server write numbers about itself there; metrics outlives the job.
  void publish_to(ps::Metrics& metrics);
  /// Serves until all trainers are done.
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
  size_t server_ = 0;  ///< own position among the servers
  std::shared_ptr<ps::ServerRole> role_;
  std::unique_ptr<Program> program_;
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> prepared_;
  // of a fleet job
  std::unique_ptr<fleet::FleetServer> fleet_;  ///< null: it is none
  std::shared_ptr<ps::Transport> transport_;
  std::string endpoint_;
  std::function<void(const std::string&)> ready_;
};

/// The slices.json of a job: the one that is named, else the one in the folder above the folder of
/// a program.
std::string find_slices(const std::string& named, const std::string& program);

}  // namespace millrace::tools
