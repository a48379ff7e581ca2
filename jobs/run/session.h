#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"
#include "executor/executor.h"
#include "executor/parallel/parallel_executor.h"
#include "framework/base/log.h"
#include "framework/import.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "io/npz.h"

namespace millrace::jobs {

/// Checkpoints of a run.
struct CheckpointOptions {
  std::string folder;               ///< where they are saved
  int64_t save_every = 0;           ///< steps between checkpoints; 0: none
  int keep_last = 5;                ///< number of checkpoints to keep; 0: all
  std::string resume;               ///< "auto", a checkpoint or a folder of them; empty: none
  bool fail_on_save_error = false;  ///< otherwise such an error is a warning
};

/// How the feeds and fetches of a session with several devices are split and joined.
struct DeviceValues {
  std::vector<int64_t> rows;     ///< of each device; empty: as the session's options say
  bool feeds_by_device = false;  ///< members of feeds are "devD/<name>"
  bool merge_fetches = true;     ///< otherwise results are "devD/<name>"
};

/// What a session opens, and how it runs it.
struct SessionOptions {
  std::string program;               ///< file; empty: that of model_dir
  std::string startup;               ///< file of the startup program; may be empty
  std::string params;                ///< npz, combined file, or folder with one file per var
  std::string model_dir;             ///< inference model folder; may be empty
  std::string params_filename;       ///< combined file in model_dir
  std::vector<std::string> fetches;  ///< empty: the fetch targets of the program
  /// Several ranks have seeds that follow from `seed`; `release_folded` is set when the session is
  /// opened.
  executor::ExecutorOptions executor;
  bool reads_parameters = false;  ///< parameters are read or saved after the run
  bool in_float64 = false;        ///< the program runs in float64, whatever it declares
  CheckpointOptions checkpoints;
  /// Options of a ParallelExecutor for the program; called only if the session needs one.
  std::function<StatusOr<executor::ParallelOptions>(const Program& program)> parallel;
  bool wants_parallel = false;  ///< also on one device
  DeviceValues device_values;
  bool data_parallel = false;  ///< sum gradients over all ranks, whatever the startup program says
  int64_t wait_ms = 600'000;   ///< maximum wait for another rank
  ImportOptions reading;       ///< limits for program files
  LogSink log = ignore_log;
};

/// A program with its scope, ready to run: parameters loaded, startup program run.
struct Session {
  std::string name;               ///< the program's file, for messages
  std::string params;             ///< source of its parameters; may be empty
  std::unique_ptr<Program> read;  ///< the program until it is prepared
  std::unique_ptr<Scope> scope;
  std::unique_ptr<executor::TrainerLink> link;      ///< to the other processes, or null
  std::unique_ptr<executor::TrainerLink> gpu_link;  ///< the same between GPUs, with engine nccl
  int rank = 0;                                     ///< among several processes
  /// The ranks that run steps together with this one because they exchange values; null: no other
  /// ranks.
  executor::CollectiveGroup* ranks = nullptr;
  std::unique_ptr<executor::PreparedProgram> prepared;   ///< null if parallel is set
  std::unique_ptr<executor::ParallelExecutor> parallel;  ///< several devices
  int64_t first_step = 0;        ///< steps that were done when the checkpoint was saved
  std::vector<uint64_t> random;  ///< positions of the random numbers by device, from a checkpoint
  double load_ms = 0;            ///< reading program and parameters
  double plan_ms = 0;            ///< compiling
  DeviceValues device_values;    ///< of steps on several devices

  /// The program as it was read.
  [[nodiscard]] const Program& program() const { return read ? *read : prepared->given(); }
};

/// Opens what the options name. Errors: those of readers, the startup program and compilation.
StatusOr<Session> open_session(const SessionOptions& options,
                               const std::shared_ptr<const executor::Runtime>& runtime);

/// Runs one step on the device or devices of the session. \param results  by name, or by
/// "devD/<name>" if the values of the devices are not merged; their memory is reused
/// Errors: those of the executor; kInvalidData for feeds with other names than "devD/<name>", if
/// they are given by device.
Status run_step(Session& session, const executor::NamedValues& feeds,
                const std::vector<std::string>& fetches, executor::NamedValues& results);

/// A program that runs once with the variables of a session with several devices.
struct SharedVarsRun {
  std::string program;               ///< file
  std::string feeds;                 ///< npz; may be empty
  std::vector<std::string> fetches;  ///< empty: the fetch targets of the program
};
/// Runs it. \param options  of its ParallelExecutor, called with the program
/// Errors: those of readers and of the executor.
StatusOr<executor::NamedValues> run_with_shared_vars(
    const SharedVarsRun& run, const SessionOptions& options,
    const std::shared_ptr<const executor::Runtime>& runtime, Session& session);

/// The given fetches, or the fetch targets of the program if there are none.
std::vector<std::string> wanted_fetches(const std::vector<std::string>& given,
                                        const Session& session);

/// The position of the random number generator of every device.
std::vector<uint64_t> random_positions(const Session& session);
/// Continues from such positions. Returns false and changes nothing if the number of devices
/// differs.
bool set_random_positions(Session& session, const std::vector<uint64_t>& positions);

/// True for a persistable var that belongs to the state of a program, not to feeding and fetching.
bool is_state_var(const Var& var);

/// All persistable vars of block 0 that hold a value, feed and fetch holders left out.
StatusOr<executor::NamedValues> persistables(const Session& session);
/// The same of every device of a session with several, as "devD/<name>".
StatusOr<executor::NamedValues> persistables_of_devices(const Session& session);

}  // namespace millrace::jobs
