#pragma once

#include <cstdlib>
#include <iostream>

namespace millrace::testing {

/// Ends the process where something that must hold does not; says what.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "violated: " << what << std::endl;
  std::abort();
}

}  // namespace millrace::testing
