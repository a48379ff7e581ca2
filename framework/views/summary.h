#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/program.h"

namespace millrace {

/// Sizes of a program. Numbers of elements and bytes are computed from the declared dims; tensors
/// with unknown dims add nothing to them.
struct ProgramSummary {
  size_t blocks = 0;
  size_t ops = 0;
  size_t vars = 0;
  size_t parameters = 0;            ///< persistable tensors, see is_stored()
  uint64_t parameter_elements = 0;  ///< saturates
  uint64_t parameter_bytes = 0;     ///< saturates
  std::string version;              ///< "1.6.1"; empty without a version
  /// Op types with their counts, most frequent first, then by name.
  std::vector<std::pair<std::string, size_t>> op_types;
};

ProgramSummary summarize(const Program& program);

/// True for a tensor that is stored in model files: persistable, and not a feed or fetch holder.
bool is_stored(const Var& var);

/// "1.6.1" for 1006001, "0 (development build)" for 0.
std::string version_text(int64_t version);

/// "12", "3.4 KiB", "1.2 GiB".
std::string bytes_text(uint64_t bytes);

/// A short human-readable summary: sizes and op types. Safe on terminals.
std::string summary_text(const Program& program, const std::string& file);

}  // namespace millrace
