#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/folder.h"
#include "ps/kill_points.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of the tool `checkpoint`.
struct CheckpointFlags {
  std::string command;              ///< list, show, verify, ...
  std::vector<std::string> paths;   ///< what stands behind it
  std::vector<std::string> beside;  ///< the same as the first path on other disks
  int64_t step = -1;                ///< of a folder of checkpoints; -1: the newest complete one
  bool last_good = false;           ///< the newest one that verifies
  std::string from = "auto";
  std::string to;
  std::string program;  ///< names and dims of parameter files
  std::string model_dir;
  std::string params_filename;
  std::string slices;     ///< of the job whose servers wrote snapshots
  std::string to_slices;  ///< of the job that is to go on from them
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
  std::string kill_point;  ///< NAME[:COUNT] where the process ends itself; empty: nowhere
  // Not flags: how a signal reaches the commands.
  std::shared_ptr<io::FileCalls> calls;     ///< fail once the command is to stop; null: never
  const std::atomic<bool>* stop = nullptr;  ///< the same for what does not go through them
};

/// Errors: kResource once the command is to stop.
Status check_stopped(const CheckpointFlags& flags);
/// What is looked at beside a path: flags.beside for the first of the command and what is in it.
std::vector<std::string> beside_of(const CheckpointFlags& flags, const std::string& path);
/// How a checkpoint is opened. \param path  of the command, or a folder in it
io::CheckpointLoadOptions load_options(const Tool& tool, const CheckpointFlags& flags,
                                       const std::string& path);
/// True if a folder, or what stands for it on other disks, has a manifest.
bool has_manifest(const CheckpointFlags& flags, const std::string& path);
/// io::list_checkpoints() of a path and what stands for it on other disks.
StatusOr<std::vector<io::CheckpointEntry>> list_steps(const CheckpointFlags& flags,
                                                      const std::string& path);

/// What --kill-point names; null: nothing. Errors: kInvalidArgument.
StatusOr<std::shared_ptr<ps::KillPoint>> kill_point_of(const CheckpointFlags& flags);

/// Adds the options to the tool.
void add_checkpoint_options(Tool& tool, CheckpointFlags& flags);

/// Runs the command that the flags name. Errors: kUsage for an unknown one and for another number
/// of paths than it takes; those of the command.
StatusOr<int> run_checkpoint(Tool& tool, const CheckpointFlags& flags);

/// The folder with a manifest that a path means: itself, or the sub-folder `step-<n>` that --step
/// names, --last-good finds, or that is the newest complete one; which one is logged.
/// Errors: kNotFound.
StatusOr<std::string> resolve_checkpoint(const Tool& tool, const CheckpointFlags& flags,
                                         const std::string& path);

/// The commands; each checks its own flags.
StatusOr<int> checkpoint_list(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_show(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_verify(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_reshard(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_convert(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_export(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_diff(Tool& tool, const CheckpointFlags& flags);
StatusOr<int> checkpoint_gc(Tool& tool, const CheckpointFlags& flags);

}  // namespace millrace::tools
