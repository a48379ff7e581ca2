#pragma once

#include <string>
#include <vector>

#include "tools/common/tool.h"
#include "transpiler/distribute/heter_programs.h"
#include "transpiler/distribute_config.h"

namespace millrace::tools {

/// Options of transpile-program. Every field of the original's configuration and of its transpile()
/// call is one flag.
struct TranspileOptions {
  std::string program;
  std::string startup;
  // distribution
  std::string transpiler = "distribute";  ///< distribute, geo or federated
  std::string trainer_id = "0";           ///< a number, or "all"
  millrace::transpiler::DistributeTranspilerConfig config;
  millrace::transpiler::TranspileArguments arguments;
  std::string program_attrs;                 ///< JSON object
  std::string sparse_tables;                 ///< JSON object: embeddings that become typed tables
  millrace::transpiler::HeterWorkers heter;  ///< processes that run ops for the trainers
  std::string io_programs;  ///< directory name for save and load programs; empty: none
  bool explain = false;
  bool strip_debug = false;
  std::string format = "pb";  ///< pb or text
  bool verify = true;
  // passes
  std::string passes;
  // training
  std::string minimize;        ///< config file: losses, parameters, optimizer
  std::string fleet;           ///< config file: mode, servers, workers of a fleet job
  std::string downpour;        ///< config file: losses, tables and processes of a DownpourSGD job
  bool backward_only = false;  ///< append gradients, no updates
  std::vector<std::string> print_after;
  bool print_after_all = false;
  std::string dump_dir;
  bool timing = false;
};

/// Adds the options to the tool.
void add_transpile_options(Tool& tool, TranspileOptions& options);

}  // namespace millrace::tools
