#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "io/job_key.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Adds --job-key to a program whose processes talk to others of their job.
void add_job_key_flag(CLI::App& app, std::string& file);

/// Reads the key of the job: of the file, or, if that is empty, of the file that `launch --job-key`
/// has put into the environment. \returns null if there is none. Errors: those of JobKey::read().
StatusOr<std::shared_ptr<const io::JobKey>> read_job_key(const std::string& file);

}  // namespace millrace::tools
