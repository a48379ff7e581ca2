#pragma once

namespace millrace {

/// The function of the module of module_test.
struct SameBuild {
  int (*twice)(int number);
};

}  // namespace millrace
