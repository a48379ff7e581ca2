#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/folder.h"
#include "jobs/checkpoint/servers.h"
#include "ps/kill_points.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of the tool `checkpoint`.
struct CheckpointFlags {
  std::string command;             ///< list, show, verify, ...
  std::vector<std::string> paths;  ///< arguments after the command
  std::vector<std::string>
      beside;         ///< folders on other disks with files of the checkpoint of the first path
  int64_t step = -1;  ///< of a folder of checkpoints; -1: the newest complete one
  bool last_good = false;  ///< the newest one that verifies
  std::string from = "auto";
  std::string to;
  std::string program;  ///< declares names and dims for parameter files
  std::string model_dir;
  std::string params_filename;
  std::string slices;     ///< slices.json of the job whose servers wrote the snapshots
  std::string to_slices;  ///< slices.json of the job that will load the new snapshots
  std::string vars;       ///< globs
  int64_t unique_id = -1;
  std::string pservers;
  int ranks = 0;
  int64_t axis = 0;
  bool cut_whole = false;
  std::string rows = "remainder";
  int64_t max_memory = int64_t{64} << 20U;
  bool sync = true;
  int keep = 5;
  bool all_incomplete = false;
  bool dry_run = false;
  double rtol = 0;
  double atol = 0;
  std::string progress = "auto";
  std::string kill_point;  ///< NAME[:COUNT]: where the process kills itself; empty: never
  // Not flags: how a signal stops the commands.
  std::shared_ptr<io::FileCalls> calls;  ///< file calls that fail after a stop signal; null: never
  const std::atomic<bool>* stop = nullptr;  ///< set by a stop signal, for work without file calls
};

/// Errors: kResource after a stop signal.
Status check_stopped(const CheckpointFlags& flags);
/// Folders on other disks that belong to a path: those of flags.beside if the path is the first one
/// of the command or inside it, otherwise none.
std::vector<std::string> beside_of(const CheckpointFlags& flags, const std::string& path);
/// Options with which a checkpoint is opened. \param path  of the command, or a folder in it
io::CheckpointLoadOptions load_options(const Tool& tool, const CheckpointFlags& flags,
                                       const std::string& path);
/// True if a folder, or one of its folders on other disks, has a manifest.
bool has_manifest(const CheckpointFlags& flags, const std::string& path);
/// io::list_checkpoints() of a path and its folders on other disks.
StatusOr<std::vector<io::CheckpointEntry>> list_steps(const CheckpointFlags& flags,
                                                      const std::string& path);

/// The kill point that --kill-point names; null if the flag is empty. Errors: kInvalidArgument.
StatusOr<std::shared_ptr<ps::KillPoint>> kill_point_of(const CheckpointFlags& flags);

/// Adds the options to the tool.
void add_checkpoint_options(Tool& tool, CheckpointFlags& flags);

/// Runs the command that the flags name. Errors: kUsage for an unknown command and for a number of
/// paths that it does not take; those of the command.
StatusOr<int> run_checkpoint(Tool& tool, const CheckpointFlags& flags);

/// The folder with a manifest that a path means: the path itself, or its sub-folder `step-<n>`. The
/// step is that of --step, the one that --last-good finds, or the newest complete one; it is
/// logged. Errors: kNotFound.
StatusOr<std::string> resolve_checkpoint(const Tool& tool, const CheckpointFlags& flags,
                                         const std::string& path);

/// How snapshots of servers are read, from the common flags.
jobs::SnapshotOptions snapshot_options(const Tool& tool);

/// The commands; each checks the flags that only it uses.
StatusOr<int> checkpoint_list(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_show(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_verify(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_reshard(Tool& tool, const CheckpointFlags& flags);
/// reshard with --slices and --to-slices: snapshots for the servers of another job.
StatusOr<int> reshard_servers(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_convert(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_export(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_diff(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_gc(Tool& tool, const CheckpointFlags& flags);

}  // namespace millrace::tools
