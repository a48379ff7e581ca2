#include "jobs/data/feed_files.h"

#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSet.h>

#include "executor/feed_targets.h"
#include "executor/gradients/float64.h"
#include "io/npy.h"
#include "io/npz.h"
#include "jobs/data/made_feed.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;

StatusOr<Lod> parse_lod_level(const std::string& flag, llvm::StringRef text, const Lod& before) {
  std::vector<LodLevel> levels = before.levels();
  LodLevel level;
  while (!text.empty()) {
    const auto [head, rest] = text.split(',');
    int64_t offset = 0;
    if (head.getAsInteger(10, offset)) {
      return Status(StatusCode::kUsage,
                    fmt::format("options.lods {}: '{}' is not an offset", flag, head.str()));
    }
    level.push_back(offset);
    text = rest;
  }
  levels.push_back(std::move(level));
  return Lod(std::move(levels));
}

Status apply_lods(const FeedOptions& options, NamedValues& values) {
  for (const std::string& flag : options.lods) {
    const auto [name, offsets] = llvm::StringRef(flag).split('=');
    const auto found = values.find(name.str());
    Tensor* const tensor = found == values.end() ? nullptr : found->second.get_if<Tensor>();
    if (tensor == nullptr)
      return {StatusCode::kUsage, fmt::format("options.lods {}: no such feed", flag)};
    MILLRACE_ASSIGN_OR_RETURN(Lod lod, parse_lod_level(flag, offsets, tensor->lod()));
    tensor->set_lod(std::move(lod));
  }
  return Ok();
}

}  // namespace

StatusOr<NamedValues> read_feeds(const FeedOptions& options, const Program& program) {
  NamedValues values;
  llvm::StringSet<> by_name;
  llvm::StringSet<> by_file;
  // Of a value by name and one in a file, the first counts. Of two alike, none is meant more.
  const auto is_first = [](llvm::StringSet<>& seen, llvm::StringRef feed,
                           llvm::StringRef name) -> Status {
    if (seen.insert(name).second) return Ok();
    return Status(
        StatusCode::kUsage,
        fmt::format("options.values {}: '{}' was given a value before", feed.str(), name.str()));
  };
  for (const std::string& feed : options.values) {
    const auto [name, file] = llvm::StringRef(feed).split('=');
    MILLRACE_ASSIGN_OR_RETURN(std::optional<Tensor> made, make_feed(name, file, program));
    std::error_code unknown;  // a long name of a var is no name of a file
    const bool named = made || (!file.empty() && !std::filesystem::exists(feed, unknown));
    if (named) {
      MILLRACE_RETURN_IF_ERROR(executor::check_feed_name(program, name));
      MILLRACE_RETURN_IF_ERROR(is_first(by_name, feed, name));
    }
    if (made) {
      values[name.str()].as<Tensor>() = std::move(*made);
      continue;
    }
    if (named) {
      MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, io::read_npy(file.str()));
      values[name.str()].as<Tensor>() = std::move(tensor);
      continue;
    }
    MILLRACE_ASSIGN_OR_RETURN(NamedValues more, io::read_values(feed));
    for (auto& [key, value] : more) {
      MILLRACE_RETURN_IF_ERROR(is_first(by_file, feed, key));
      if (!by_name.contains(key)) values[key] = std::move(value);
    }
  }
  MILLRACE_RETURN_IF_ERROR(apply_lods(options, values));
  if (options.in_float64) MILLRACE_RETURN_IF_ERROR(widen_values(values));
  return values;
}

Status widen_values(NamedValues& values) {
  for (auto& [name, value] : values) {
    MILLRACE_ASSIGN_OR_RETURN(Value wide, executor::in_float64(value));
    value = std::move(wide);
  }
  return Ok();
}

}  // namespace millrace::jobs
