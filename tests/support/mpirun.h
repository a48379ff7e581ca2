#pragma once

#include <string>
#include <vector>

namespace millrace::spawn {

/// What stands before a command so that it runs as so many processes of this machine.
inline std::vector<std::string> mpirun_words(const std::string& count) {
  return {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", count};
}

/// For its environment: Open MPI leaves memory behind at its end, which is not for the sanitizers.
inline std::vector<std::string> mpirun_environment() {
  return {"ASAN_OPTIONS=detect_leaks=0"};
}

}  // namespace millrace::spawn
