#pragma once

#include <memory>
#include <string>

#include "framework/program.h"
#include "ops/registry.h"
#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// Reads a program and checks its ops. Errors: those of both, with the path.
StatusOr<std::unique_ptr<Program>> read_checked_program(Tool& tool, const ops::OpRegistry& registry,
                                                        const std::string& path);

/// A training program, generated from a forward program.
struct TrainingPrograms {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
  /// The learning-rate var of the first loss if the trainer must update it (a scheduler object);
  /// otherwise empty.
  std::string scheduled_rate;
  std::string schedule;  ///< its scheduler object in JSON
};

/// Reads --program, --startup and --minimize and appends gradients and updates. With --verify the
/// result is verified. Errors: kUsage for a missing flag; those of reading and of ops::minimize().
StatusOr<TrainingPrograms> make_training_programs(Tool& tool, const TranspileOptions& options,
                                                  const ops::OpRegistry& registry);

/// transpile-program --minimize CONFIG: turns a forward program into a training program below -o.
/// With --backward-only: backward/__model__, the program with the gradients of every loss.
StatusOr<int> minimize(Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
