#include "framework/base/registered_twice.h"

#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

namespace millrace {

void abort_registered_twice(std::string_view kind, std::string_view name) {
  fmt::print(stderr, "internal error: {} '{}' is registered twice\n", kind, name);
  std::abort();
}

}  // namespace millrace
