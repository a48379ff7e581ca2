#pragma once

#include <string>

#include "framework/program.h"

namespace millrace::interchange {

/// What a program is for, as its ops show.
enum class ProgramKind {
  kInference,  ///< feed and fetch ops, no updates
  kForward,    ///< computes from feeds, but has no fetch ops: a test program
  kTraining,   ///< updates parameters, or has gradients
  kStartup,    ///< sets initial values, and may exchange them with other processes
  kTrainer,    ///< exchanges values with parameter servers or other ranks
  kServer,     ///< waits for trainers
  kEmpty,      ///< has no ops
};

/// "inference model", "training program", ...
const char* kind_text(ProgramKind kind);

/// Looks at all blocks.
ProgramKind kind_of(const Program& program);

/// Which release wrote a program: "2.2.2"; if the file has no number or 0, which a build between
/// releases writes, what its fields tell: "2.x without a number", "1.6 to 1.8 without a number",
/// "1.6 or later without a number", "1.5 or earlier".
/// Source: spec/model_format.md, "Version fields".
std::string release_of(const Program& program);

}  // namespace millrace::interchange
