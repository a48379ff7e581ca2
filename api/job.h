#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/distribute_config.h"

namespace millrace {
class Program;
}

/// The folder of a job: what `transpile-program` writes and servers, trainers and the tools read.
namespace millrace::api {

/// How a program is distributed over a folder.
struct WriteJobOptions {
  /// For an asynchronous job, sync_mode is false here and in `arguments`.
  transpiler::DistributeTranspilerConfig config = {};
  /// `trainer_id` and `current_endpoint` are ignored: all trainers and servers are written.
  transpiler::TranspileArguments arguments = {};
  std::string transpiler = "distribute";  ///< distribute, geo or federated
  /// JSON with settings of embeddings that become typed tables, by parameter (docs/tables.md);
  /// empty: none. Only for transpiler distribute and mode pserver.
  std::string sparse_tables = {};
  bool replace = false;  ///< replace the whole folder if it exists; otherwise an error (kUsage)
};

/// What was written.
struct WrittenJob {
  int trainers = 0;
  int servers = 0;                     ///< 0 in modes without servers
  std::vector<std::string> endpoints;  ///< of the servers, in order
  std::vector<std::string> remarks;    ///< on what was done; more with config.print_log
};

/// Distributes a training program and writes `trainer_<i>` and `pserver_<i>` with `__model__` and
/// `__startup__`, slices.json, and with typed tables tables.json. The folder appears complete or
/// not at all.
/// Errors: those of DistributeTranspiler::transpile(); kInvalidArgument naming the setting of a
/// table; kUnimplemented for tables in other modes; kUsage; kIo. Thread-safety: pure.
StatusOr<WrittenJob> write_job(const Program& main, const Program& startup,
                               const std::string& folder, const WriteJobOptions& options);

/// The input files of one trainer or server.
struct RoleFiles {
  std::string program;       ///< file of the program that serves or runs the steps
  std::string startup = {};  ///< file of the program that runs once before; empty: none
  /// slices.json; empty: the one in the parent of the program's folder, if there is one.
  std::string slices = {};
  std::string params = {};  ///< initial whole variables: npz, or a folder with one file per var
  /// Servers: a program that loads their variables (io_load) after the startup program.
  std::string load_program = {};
};

/// The files of a role in the folder of a job. They need not exist.
RoleFiles trainer_files(const std::string& folder, int trainer);
RoleFiles server_files(const std::string& folder, int server);

}  // namespace millrace::api
