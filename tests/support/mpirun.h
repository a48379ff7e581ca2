#pragma once

#include <string>
#include <vector>

namespace millrace::spawn {

/// The prefix of a command that runs it as the given number of processes on this machine.
inline std::vector<std::string> mpirun_words(const std::string& count) {
  return {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", count};
}

/// For its environment: Open MPI does not free all memory at its end, which the sanitizers would
/// report.
inline std::vector<std::string> mpirun_environment() {
  return {"ASAN_OPTIONS=detect_leaks=0"};
}

}  // namespace millrace::spawn
