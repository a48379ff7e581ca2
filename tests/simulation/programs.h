#pragma once

#include <string>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "tests/simulation/case.h"

namespace millrace::simulation {

/// The training program of all cases: four parameters, all zero at the start, and a gradient that
/// is exactly what is fed. The first is split into slices if there are servers for them.
///
/// Trainer t feeds in step k a matrix that is kUpdate in column t * steps + k and 0 elsewhere. So
/// the parameters show how often each update was applied, on each slice.
inline constexpr float kUpdate = 60;  ///< 60 / n is whole for up to six trainers
inline constexpr int kColumns = 128;

/// Rows of parameters that are on one server.
struct Slice {
  const char* param;
  int begin;
  int end;
};
inline constexpr Slice kSlices[] = {
    {"wide", 0, 64}, {"wide", 64, 128}, {"narrow_0", 0, 2}, {"narrow_1", 0, 2}, {"narrow_2", 0, 2}};

/// Writes the programs of all trainers and servers, in the layout of jobs::JobFolder.
Status write_programs(const Case& job, const std::string& folder);

/// What a trainer feeds in a step.
StatusOr<executor::NamedValues> feeds_of(const Case& job, int trainer, int64_t step);

/// The endpoint of a server in the programs.
std::string endpoint_of(int server);

}  // namespace millrace::simulation
