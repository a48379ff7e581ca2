#include "io/npz_names.h"

#include <fmt/format.h>

namespace millrace::io {
namespace {

// True for the number of an element below the length of its array, spelled as to_values() expects
// it.
bool is_element(const std::string& tail, int64_t length) {
  constexpr size_t kMostDigits = 18;
  if (tail.empty() || tail.size() > kMostDigits || (tail.size() > 1 && tail[0] == '0'))
    return false;
  return tail.find_first_not_of("0123456789") == std::string::npos && std::stoll(tail) < length;
}

}  // namespace

void take_names(NpzNames& names, const std::string& name, std::vector<std::string>& to) {
  const auto take = [&](const std::string& one) {
    if (names.erase(one) == 0) return false;
    to.push_back(one);
    return true;
  };
  take(name);
  take(name + ".dtype");
  for (size_t level = 0; take(fmt::format("{}.lod{}", name, level)); ++level) {
  }
}

void take_array_names(NpzNames& names, const std::string& name, std::optional<int64_t> length,
                      std::vector<std::string>& to) {
  if (!length) {
    for (size_t i = 0; names.contains(fmt::format("{}.{}", name, i)); ++i)
      take_names(names, fmt::format("{}.{}", name, i), to);
    return;
  }
  names.erase(name + ".length");
  to.push_back(name + ".length");
  const std::string prefix = name + ".";
  std::vector<std::string> elements;
  for (auto it = names.lower_bound(prefix); it != names.end() && it->starts_with(prefix); ++it) {
    if (is_element(it->substr(prefix.size()), *length)) elements.push_back(*it);
  }
  for (const std::string& element : elements) take_names(names, element, to);
}

}  // namespace millrace::io
