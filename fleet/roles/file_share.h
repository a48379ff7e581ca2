#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace millrace::fleet {

/// The files of one worker: consecutive ones, the first workers have one more if they cannot be
/// divided evenly. Empty for some workers if there are fewer files than workers.
inline std::vector<std::string> file_share(const std::vector<std::string>& files, int worker,
                                           int workers) {
  const auto own = static_cast<size_t>(worker);
  const size_t each = files.size() / static_cast<size_t>(workers);
  const size_t larger = files.size() % static_cast<size_t>(workers);
  const size_t begin = own * each + std::min(own, larger);
  const size_t count = each + (own < larger ? 1 : 0);
  const auto first = files.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace millrace::fleet
