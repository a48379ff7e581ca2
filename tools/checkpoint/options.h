#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "jobs/checkpoint/open_source.h"
#include "ps/kill_points.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of the tool `checkpoint`.
struct CheckpointFlags {
  std::string command;             ///< list, show, verify, ...
  std::vector<std::string> paths;  ///< arguments after the command
  jobs::SourceOptions source;      ///< which values the paths mean; finish_flags() completes it
  std::string from = "auto";
  std::string to;
  std::string model_dir;
  std::string params_filename;
  std::string to_slices;  ///< slices.json of the job that will load the new snapshots
  std::string vars;       ///< globs
  std::string pservers;
  int ranks = 0;
  int64_t axis = 0;
  bool split_whole = false;
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
};

/// Completes the options of the sources from the parsed flags and the common ones.
/// \param stop  set by a stop signal, after which commands fail with kResource; must outlive the
/// flags
void finish_flags(const Tool& tool, const std::atomic<bool>& stop, CheckpointFlags& flags);

/// The kill point that --kill-point names; null if the flag is empty. Errors: kInvalidArgument.
StatusOr<std::shared_ptr<ps::KillPoint>> kill_point_of(const CheckpointFlags& flags);

/// Adds the options to the tool.
void add_checkpoint_options(Tool& tool, CheckpointFlags& flags);

/// Runs the command that the flags name. Errors: kUsage for an unknown command and for a number of
/// paths that it does not take; those of the command.
StatusOr<int> run_checkpoint(Tool& tool, const CheckpointFlags& flags);

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
