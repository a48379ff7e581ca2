#pragma once

#include <cstdlib>
#include <iostream>

namespace millrace::testing {

/// Aborts the process with a message if a required property does not hold.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "violated: " << what << std::endl;
  std::abort();
}

}  // namespace millrace::testing
