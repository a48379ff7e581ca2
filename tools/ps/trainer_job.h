#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/client/trainer_link.h"
#include "tools/common/tool.h"
#include "tools/ps/flags.h"
#include "tools/ps/trainer_stats.h"

namespace millrace::tools {

/// One trainer of a parameter-server job: its program, its variables, and its way to the servers.
class TrainerJob {
 public:
  /// Where everything comes from.
  struct Files {
    std::string program;
    std::string startup;  ///< may be empty
    std::string slices;   ///< may be empty if nothing is gathered
    std::string params;   ///< whole variables; may be empty
  };
  /// How it runs.
  struct Settings {
    int trainer = 0;
    int threads = 1;
    bool optimize = true;
    std::string files_root;  ///< folder that ops may use; empty: none
  };
  /// Reads programs, runs the startup program, which fetches from the servers, loads parameters and
  /// compiles. Errors: those of readers, the startup program and compilation.
  static StatusOr<std::unique_ptr<TrainerJob>> open(const Tool& tool, const Files& files,
                                                    const PsFlags& flags, const Settings& settings,
                                                    std::shared_ptr<ps::Transport> transport);

  [[nodiscard]] const Program& program() const { return *program_; }
  /// Runs one step. \param results  by name; memory is used again
  Status step(int64_t number, const executor::NamedValues& feeds,
              const std::vector<std::string>& fetches, executor::NamedValues& results);
  /// Notes where the time of later steps goes, and the first fetch where it is one number.
  void keep_stats();
  [[nodiscard]] TrainerStats stats() const;
  /// Tells the servers that this trainer is done.
  /// \param gather  null: leaves at once. Else waits until all trainers are done and receives
  ///                parameters and optimizer state from the servers, by original name
  Status finish(executor::NamedValues* gather);

 private:
  TrainerJob() = default;
  Status load(const Tool& tool, const Files& files, const executor::Executor& executor);

  std::string name_;
  std::string slices_;
  std::shared_ptr<ps::Client> client_;
  std::shared_ptr<ps::TrainerLink> link_;
  std::unique_ptr<Program> program_;
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> prepared_;
  TransferClock clock_;
  TrainerStats stats_;
};

}  // namespace millrace::tools
