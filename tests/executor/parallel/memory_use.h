#pragma once

#include <cstdint>
#include <fstream>

namespace millrace::executor {

/// Resident memory of this process.
inline int64_t resident_kb() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  file >> pages >> resident;
  return resident * 4;
}

}  // namespace millrace::executor
