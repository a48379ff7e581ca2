#pragma once

#include "framework/base/status.h"
#include "framework/program.h"
#include "tools/common/tool.h"
#include "tools/run/options.h"

/// What would fail after the last step of a run is checked before the first one.
namespace millrace::tools {

/// Checks the files that a run writes at its end. Errors: kUsage for one that exists, without
/// --force; kNotFound for one in a folder that does not exist; kInvalidData for a path of something
/// else than a file.
Status check_output_files(const Tool& tool, const RunOptions& options);

/// Checks that no file of --save-params exists, without --force, and that --save-model can be made.
/// \param program  the program that runs; null: a job, of which only --model-program is checked,
/// and
///                 that it may save to these folders
/// Errors: kUsage; those of jobs::save_place(); those of executor::make_inference_program().
Status check_saved_values(const Tool& tool, const RunOptions& options, const Program* program);

}  // namespace millrace::tools
