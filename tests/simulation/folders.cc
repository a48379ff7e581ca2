#include "tests/simulation/folders.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

namespace millrace::simulation {
namespace {

namespace fs = std::filesystem;

// In an order that does not depend on the file system.
std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

void damage(const fs::path& file, Random& random) {
  const uint64_t kind = random.below(5);
  if (kind == 0) fs::remove(file);
  if (kind == 1) fs::resize_file(file, 0);
  if (kind == 2 && fs::file_size(file) > 0)
    fs::resize_file(file, random.below(static_cast<uint64_t>(fs::file_size(file))));
}

}  // namespace

std::string ServerFolder::snapshots() const {
  return fmt::format("{}/server-{}", root, server);
}

std::string ServerFolder::term() const {
  return snapshots() + ".term";
}

bool ServerFolder::exists() const {
  return fs::exists(snapshots());
}

void ServerFolder::copy_from(const ServerFolder& other, bool with_term) const {
  fs::remove_all(snapshots());
  fs::create_directories(root);
  if (other.exists()) fs::copy(other.snapshots(), snapshots(), fs::copy_options::recursive);
  if (!with_term) return;
  fs::remove(term());
  if (fs::exists(other.term())) fs::copy(other.term(), term());
}

void ServerFolder::tear(Random& random) const {
  std::vector<fs::path> steps = sorted_entries(snapshots());
  std::erase_if(steps, [](const fs::path& path) { return !fs::is_directory(path); });
  // step-10 is after step-9
  const auto order = [](const fs::path& path) {
    return std::pair(path.string().size(), path.string());
  };
  const auto last = std::ranges::max_element(steps, {}, order);
  if (last != steps.end()) {
    for (const fs::path& file : sorted_entries(*last))
      if (fs::is_regular_file(file)) damage(file, random);
  }
  if (random.chance(0.5)) fs::remove(term());
}

}  // namespace millrace::simulation
