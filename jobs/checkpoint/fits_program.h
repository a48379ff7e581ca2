#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "io/checkpoint/checkpoint.h"

namespace millrace::jobs {

/// Checks that a checkpoint has the persistable variables and tensor arrays of a program, with
/// their dtypes and dims. \returns an error for each one that is missing or different, with folder
/// and var
std::vector<Status> check_fits_program(const io::Checkpoint& checkpoint, const Program& program);

}  // namespace millrace::jobs
