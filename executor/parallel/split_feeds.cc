#include "executor/parallel/split_feeds.h"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"

namespace millrace::executor {
namespace {

bool belongs_to_all(const Program& program, const std::string& name) {
  const Var* const var = program.root().find_var(name);
  return var != nullptr && var->persistable();
}

// A persistable var with one row is given to all devices; with as many rows as devices, each gets
// one.
Status spread_persistable(const std::string& name, const Tensor& tensor,
                          std::vector<DeviceFeed>& feeds) {
  const int64_t rows = splittable_rows(tensor);
  const auto devices = static_cast<int64_t>(feeds.size());
  if (rows != 1 && rows != devices) {
    return of_var(InvalidArgument("feed of a persistable var: expected 1 or {} rows, found {}",
                                  devices, rows),
                  name);
  }
  for (int64_t d = 0; d < devices; ++d) {
    feeds[static_cast<size_t>(d)].values[name].as<Tensor>() =
        rows == 1 ? tensor.share() : slice_rows(tensor, d, d + 1);
  }
  return Ok();
}

Status too_few(const std::string& name, int64_t rows, int devices) {
  return of_var(InvalidArgument("feed: {} rows cannot be split over {} devices", rows, devices),
                name)
      .with_hint("use fewer devices (CPU_NUM, --devices), larger batches, or leave this batch out");
}

Status split_tensor(const std::string& name, const Tensor& tensor, const SplitSettings& settings,
                    std::vector<DeviceFeed>& feeds) {
  const int64_t rows = splittable_rows(tensor);
  if (settings.training && rows < settings.devices) return too_few(name, rows, settings.devices);
  StatusOr<std::vector<int64_t>> counts =
      divide_rows(rows, settings.devices, settings.rule, settings.given);
  if (!counts.ok()) return of_var(std::move(counts).status(), name);
  int64_t begin = 0;
  for (size_t d = 0; d < feeds.size(); ++d) {
    const int64_t count = (*counts)[d];
    if (count == 0) continue;
    if (feeds[d].rows == 0) feeds[d].rows = count;
    feeds[d].values[name].as<Tensor>() = slice_rows(tensor, begin, begin + count);
    begin += count;
  }
  return Ok();
}

}  // namespace

StatusOr<std::vector<int64_t>> divide_rows(int64_t rows, int devices, SplitRule rule,
                                           llvm::ArrayRef<int64_t> given) {
  if (!given.empty()) {
    const int64_t sum = std::accumulate(given.begin(), given.end(), int64_t{0});
    const bool fits = static_cast<int>(given.size()) == devices && sum == rows &&
                      std::all_of(given.begin(), given.end(), [](int64_t n) { return n > 0; });
    if (fits) return std::vector<int64_t>(given.begin(), given.end());
    return InvalidArgument("feed: rows [{}] for the devices do not split {} rows into {} parts",
                           fmt::join(given, ", "), rows, devices);
  }
  std::vector<int64_t> counts(static_cast<size_t>(devices), 0);
  if (rows < devices) {
    std::fill_n(counts.begin(), rows, 1);
    return counts;
  }
  const int64_t share = rule == SplitRule::kFloor ? rows / devices : (rows + devices - 1) / devices;
  int64_t left = rows;
  for (int64_t d = 0; d < devices; ++d) {
    const int64_t others = devices - 1 - d;  // which need one row each
    const bool last_of_floor = rule == SplitRule::kFloor && others == 0;
    const int64_t count = last_of_floor ? left : std::min(share, left - others);
    counts[static_cast<size_t>(d)] = count;
    left -= count;
  }
  return counts;
}

int64_t splittable_rows(const Tensor& tensor) {
  if (!tensor.lod().empty()) return tensor.lod().sequences(0);
  return tensor.rank() == 0 ? 1 : tensor.dim(0);
}

Tensor slice_rows(const Tensor& tensor, int64_t begin, int64_t end) {
  if (tensor.rank() == 0) return tensor.share();
  std::vector<LodLevel> levels;
  for (size_t k = 0; k < tensor.lod().size(); ++k) {
    const llvm::ArrayRef<int64_t> offsets = tensor.lod().level(k);
    const int64_t first = offsets[static_cast<size_t>(begin)];
    LodLevel level;
    for (int64_t i = begin; i <= end; ++i) level.push_back(offsets[static_cast<size_t>(i)] - first);
    levels.push_back(std::move(level));
    end = offsets[static_cast<size_t>(end)];
    begin = first;
  }
  Tensor view = tensor.share_rows(begin, end);
  if (!levels.empty()) view.set_lod(Lod(std::move(levels)));
  return view;
}

StatusOr<std::vector<DeviceFeed>> split_feeds(const Program& program, const NamedValues& feeds,
                                              const SplitSettings& settings) {
  std::vector<DeviceFeed> result(static_cast<size_t>(settings.devices));
  for (const auto& [name, value] : feeds) {
    if (program.root().find_var(name) == nullptr) continue;
    const auto* const tensor = value.get_if<Tensor>();
    if (tensor == nullptr) {
      return of_var(
          InvalidArgument("feed: only dense tensors can be split, found {}", describe(value)),
          name);
    }
    const int64_t rows = tensor->rank() == 0 ? 1 : tensor->dim(0);
    if (Status status = tensor->lod().check(rows); !status.ok())
      return of_var(std::move(status), name);
    MILLRACE_RETURN_IF_ERROR(belongs_to_all(program, name)
                                 ? spread_persistable(name, *tensor, result)
                                 : split_tensor(name, *tensor, settings, result));
  }
  return result;
}

StatusOr<std::vector<DeviceFeed>> list_feeds(const Program& program,
                                             llvm::ArrayRef<NamedValues> feeds,
                                             const SplitSettings& settings) {
  const auto devices = static_cast<size_t>(settings.devices);
  if (feeds.size() > devices || (settings.training && feeds.size() != devices) || feeds.empty()) {
    return InvalidArgument("feed list: expected one feed for each of {} devices, found {}", devices,
                           feeds.size());
  }
  std::vector<DeviceFeed> result(devices);
  for (size_t d = 0; d < feeds.size(); ++d) {
    if (feeds[d].empty()) return InvalidArgument("feed list: the feed of device {} is empty", d);
    for (const auto& [name, value] : feeds[d]) {
      const Var* const var = program.root().find_var(name);
      const auto* const tensor = value.get_if<Tensor>();
      if (tensor == nullptr) {
        MILLRACE_ASSIGN_OR_RETURN(result[d].values[name], clone(value));
        continue;
      }
      result[d].values[name].as<Tensor>() = tensor->share();
      if (var == nullptr || var->persistable() || tensor->rank() == 0) continue;
      if (tensor->dim(0) == 0)
        return of_var(InvalidArgument("feed list: device {} gets no rows", d), name);
      // takes the largest number: a fed gradient of the loss has fewer rows than the data
      result[d].rows = std::max(result[d].rows, splittable_rows(*tensor));
    }
  }
  return result;
}

StatusOr<std::vector<DeviceFeed>> split_micro_batches(const Program& program, DeviceFeed feed,
                                                      int parts) {
  std::vector<DeviceFeed> result;
  if (parts == 1) {
    result.push_back(std::move(feed));
    return result;
  }
  SplitSettings settings;
  settings.devices = parts;
  settings.training = true;
  NamedValues split;
  NamedValues whole;
  for (auto& [name, value] : feed.values)
    (belongs_to_all(program, name) || !value.holds<Tensor>() ? whole : split)[name] =
        std::move(value);
  if (split.empty()) return InvalidArgument("micro-batches: no fed var can be split");
  MILLRACE_ASSIGN_OR_RETURN(result, split_feeds(program, split, settings));
  for (DeviceFeed& part : result) {
    for (const auto& [name, value] : whole) {
      if (const auto* const tensor = value.get_if<Tensor>()) {
        part.values[name].as<Tensor>() = tensor->share();
      } else {
        MILLRACE_ASSIGN_OR_RETURN(part.values[name], clone(value));
      }
    }
  }
  return result;
}

}  // namespace millrace::executor
