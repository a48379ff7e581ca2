#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "jobs/checkpoint/open_source.h"

namespace millrace::jobs {

/// What was checked, and what is wrong with it.
struct VerifyOutcome {
  std::vector<std::string> looked_at;
  std::vector<Status> wrong;
};

/// What receives the bytes that were read of a folder. \param bytes  of the whole folder
using VerifyProgress =
    std::function<std::function<void(uint64_t)>(const std::string& folder, uint64_t bytes)>;

/// Reads everything that a path means: a checkpoint, the checkpoints of a folder (or the one of
/// SourceOptions::step), those of several servers, or a file. Compares checksums where there are
/// any; a file without checksums passes if its values can be read. Findings are added to `outcome`.
///
/// \param program  null, or the program whose variables a checkpoint must have
/// Errors: kNotFound if there is nothing at the path; that of SourceOptions::proceed.
Status verify_path(const SourceOptions& options, const std::string& path, const Program* program,
                   const VerifyProgress& progress, VerifyOutcome& outcome);

}  // namespace millrace::jobs
