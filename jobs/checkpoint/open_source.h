#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/log.h"
#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/folder.h"
#include "jobs/checkpoint/servers.h"
#include "jobs/checkpoint/tensor_source.h"

namespace millrace::jobs {

/// Forms in which values are stored.
enum class ValuesForm {
  kAuto,           ///< found by content; only for reading
  kCheckpoint,     ///< a folder with a manifest, or one of step-<n> folders
  kSafetensors,    ///< one safetensors file
  kNpz,            ///< one npz archive
  kFluidCombined,  ///< a file of the original with all variables, without their names
  kFluidSeparate,  ///< a folder of the original with a file for each variable
  kOriginal,       ///< a distributed checkpoint of the original; only for reading
};
/// The form of a name: "auto", "checkpoint", "safetensors", "npz", "fluid-combined",
/// "fluid-separate", "original".
std::optional<ValuesForm> values_form(std::string_view name);
/// The name of a form.
std::string_view values_form_name(ValuesForm form);

/// Which values a path means, and how they are read.
struct SourceOptions {
  ValuesForm from = ValuesForm::kAuto;
  int64_t step = -1;  ///< of a folder of checkpoints, or of snapshots; -1: the newest complete one
  bool last_good = false;  ///< the newest one that verifies; it is logged. Not with `step`
  std::string program;     ///< file that declares names and dims for files of the original
  std::string slices;      ///< slices.json of the job whose servers wrote the snapshots
  int64_t unique_id = -1;  ///< of a distributed checkpoint of the original; -1: the only one
  /// Read distributed checkpoints of the original: files of a third party, in a format whose usual
  /// reader executes code (this one does not).
  bool allow_original = false;
  std::string root;                 ///< the path that the folders of `beside` belong to
  std::vector<std::string> beside;  ///< folders on other disks with files of that checkpoint
  int threads = 1;
  int64_t max_program_bytes = std::numeric_limits<int32_t>::max();  ///< also of slices.json
  std::shared_ptr<io::FileCalls> calls;  ///< file calls that fail after a stop; null: the system's
  std::function<Status()> proceed = [] {
    return Ok();
  };  ///< called before each value; its error ends the work
  LogSink log = ignore_log;
};

/// How the io library opens a checkpoint. \param path  SourceOptions::root, a folder in it, or any
/// other path, which has no folders beside it
io::CheckpointLoadOptions load_options(const SourceOptions& options, const std::string& path);
/// How snapshots of servers are read.
SnapshotOptions snapshot_options(const SourceOptions& options);
/// True if a folder, or one of its folders on other disks, has a manifest.
bool has_manifest(const SourceOptions& options, const std::string& path);
/// io::list_checkpoints() of a path and its folders on other disks.
StatusOr<std::vector<io::CheckpointEntry>> list_steps(const SourceOptions& options,
                                                      const std::string& path);

/// The folder with a manifest that a path means: the path itself, or its sub-folder `step-<n>`.
/// Errors: kNotFound, also if the path itself is of another step than SourceOptions::step; with
/// SourceOptions::last_good, what is wrong with the path itself.
StatusOr<std::string> resolve_checkpoint(const SourceOptions& options, const std::string& path);

/// Checks that at least one of the sources that were opened reads each option that is set.
/// \param forms  TensorSource::form() of each
/// Errors: kUsage naming the option.
Status check_read(const SourceOptions& options, llvm::ArrayRef<std::string> forms);

/// Opens what a path means. With kAuto the form is found by content: a folder with a manifest or
/// with step-<n> sub-folders, a folder of the original's distributed checkpoint, a safetensors
/// file, or an npz archive. Any other file is a combined parameter file, which needs
/// SourceOptions::program for its names. Any other folder has one file per variable.
///
/// Sources hold one value in memory at a time.
/// Errors: kNotFound, kInvalidData; kUsage for a combined file without program and for a
/// distributed checkpoint of the original that is not allowed.
StatusOr<std::unique_ptr<TensorSource>> open_source(const SourceOptions& options,
                                                    const std::string& path);

}  // namespace millrace::jobs
