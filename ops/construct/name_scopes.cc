#include "ops/construct/name_scopes.h"

#include <fmt/format.h>

namespace millrace::ops {

std::string NameScopes::open(const std::string& path, const std::string& prefix) {
  const int64_t earlier = openings_[path + prefix]++;
  return earlier == 0 ? fmt::format("{}{}/", path, prefix)
                      : fmt::format("{}{}_{}/", path, prefix, earlier);
}

void NameScopes::continue_after(const std::string& prefix, int64_t openings) {
  openings_["/" + prefix] = openings;
}

}  // namespace millrace::ops
