#pragma once

namespace millrace {

/// What the module of module_test does.
struct SameBuild {
  int (*twice)(int number);
};

}  // namespace millrace
