#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "jobs/checkpoint/tensor_source.h"
#include "tools/checkpoint/options.h"

namespace millrace::tools {

/// Opens what a path means. With flags.from "auto" the form is found by content: a folder with a
/// manifest or with step-<n> sub-folders, a folder of the original's distributed checkpoint, a
/// safetensors file, or an npz archive. Any other file is a combined parameter file, which needs
/// flags.program for its names. Any other folder has one file per variable.
///
/// Sources hold one value in memory at a time.
/// Errors: kNotFound, kInvalidData, kUsage for a combined file without program.
StatusOr<std::unique_ptr<jobs::TensorSource>> open_source(const Tool& tool,
                                                          const CheckpointFlags& flags,
                                                          const std::string& path);

}  // namespace millrace::tools
