#include "io/checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "framework/base/errors.h"
#include "io/checkpoint/commit.h"
#include "io/checkpoint/spread_folder.h"

namespace millrace::io {
namespace {

constexpr std::string_view kPrefix = "step-";

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.begin(), name.end(), step);
  const bool canonical = name == "0" || (!name.empty() && name.front() != '0');
  if (error != std::errc() || end != name.end() || step < 0 || !canonical) return std::nullopt;
  return step;
}

std::shared_ptr<FileCalls> or_system(const std::shared_ptr<FileCalls>& calls) {
  return calls == nullptr ? system_file_calls() : calls;
}

// The checkpoints in one root folder.
StatusOr<std::vector<CheckpointEntry>> list_one(const std::string& root,
                                                const std::shared_ptr<FileCalls>& calls) {
  const std::shared_ptr<FileCalls> used = or_system(calls);
  StatusOr<std::vector<std::string>> names = used->list(root);
  std::vector<CheckpointEntry> entries;
  if (!names.ok()) {
    if (names.status().code() == StatusCode::kNotFound) return entries;
    return std::move(names).status();
  }
  for (const std::string& name : *names) {
    const auto step = step_of(name);
    if (!step) continue;
    const std::string folder = checkpoint_folder(root, *step);
    StatusOr<std::vector<std::string>> inside = used->list(folder);
    // Not a folder, or removed meanwhile.
    if (inside.status().code() == StatusCode::kNotFound) continue;
    if (!inside.ok()) return std::move(inside).status();
    entries.push_back({*step, folder, std::ranges::binary_search(*inside, kManifestName)});
  }
  std::ranges::sort(entries, {}, &CheckpointEntry::step);
  return entries;
}

Status remove_checkpoint(FileCalls& calls, const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(withdraw_checkpoint(calls, folder));
  return remove_withdrawn(calls, folder);
}

}  // namespace

std::string checkpoint_folder(const std::string& root, int64_t step) {
  const bool slash = !root.empty() && root.back() == '/';
  return fmt::format("{}{}{}{}", root, slash ? "" : "/", kPrefix, step);
}

StatusOr<std::vector<CheckpointEntry>> list_checkpoints(const std::string& root,
                                                        const std::shared_ptr<FileCalls>& calls,
                                                        const std::vector<std::string>& beside) {
  std::map<int64_t, bool> steps;
  std::vector<std::string> roots = beside;
  roots.push_back(root);
  for (const std::string& each : roots) {
    MILLRACE_ASSIGN_OR_RETURN(const auto entries, list_one(each, calls));
    for (const CheckpointEntry& entry : entries) steps[entry.step] |= entry.complete;
  }
  std::vector<CheckpointEntry> all;
  for (const auto& [step, complete] : steps)
    all.push_back({step, checkpoint_folder(root, step), complete});
  return all;
}

Status save_checkpoint(const LocalState& state, const std::string& root, int64_t step,
                       Gather& gather, CheckpointSaveOptions options, int keep_last,
                       std::string* warning) {
  if (step < 0) return InvalidArgument("step {}: expected 0 or more", step);
  options.step = step;
  MILLRACE_ASSIGN_OR_RETURN(const SaveOutcome saved,
                            save_together(state, checkpoint_folder(root, step), gather, options));
  if (keep_last <= 0) return Ok();
  Status removed;
  if (saved.spread) {
    removed = collect_spread_garbage(root, keep_last, gather, options.calls);
  } else if (gather.rank() == options.coordinator) {
    removed =
        collect_garbage(root, keep_last, /*all_incomplete=*/false, /*dry_run=*/false, options.calls)
            .status();
  }
  if (!removed.ok() && warning != nullptr) *warning = removed.to_string();
  return Ok();
}

Status save_checkpoint(const LocalState& state, const std::string& root, int64_t step,
                       CheckpointSaveOptions options, int keep_last, std::string* warning) {
  SingleRank alone;
  return save_checkpoint(state, root, step, alone, std::move(options), keep_last, warning);
}

StatusOr<LastCheckpoint> open_last_checkpoint(const std::string& root, bool verify,
                                              const CheckpointLoadOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries,
                            list_checkpoints(root, options.calls, options.beside));
  std::vector<Status> skipped;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->complete) continue;
    StatusOr<Checkpoint> checkpoint = Checkpoint::open(entry->folder, options);
    if (checkpoint.ok() && verify) {
      std::vector<Status> wrong = checkpoint->verify();
      if (!wrong.empty()) checkpoint = std::move(wrong.front());
    }
    if (checkpoint.ok())
      return LastCheckpoint{entry->step, *std::move(checkpoint), std::move(skipped)};
    skipped.push_back(std::move(checkpoint).status());
  }
  return none_can_be_loaded(root, skipped);
}

Status none_can_be_loaded(const std::string& root, const std::vector<Status>& skipped) {
  if (skipped.empty()) return NotFound("there is no checkpoint").in_file(root);
  Status none = InvalidData("none of the {} checkpoints can be loaded", skipped.size())
                    .in_file(root)
                    .with_hint("to begin again, move the folder away or name another one");
  for (const Status& status : skipped)
    none = std::move(none).with_note(status.location().to_string() + ": " + status.message());
  return none;
}

StatusOr<Garbage> collect_garbage(const std::string& root, int keep, bool all_incomplete,
                                  bool dry_run, const std::shared_ptr<FileCalls>& calls) {
  if (keep < 1) return InvalidArgument("keep {}: expected at least 1 checkpoint", keep);
  const std::shared_ptr<FileCalls> used = or_system(calls);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries,
                            list_checkpoints(root, used));
  int complete = 0;
  Garbage garbage;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->complete) ++complete;
    const bool old = entry->complete ? complete > keep : complete > 0 || all_incomplete;
    (old ? garbage.removed : garbage.kept).push_back(*entry);
    if (old && !dry_run) MILLRACE_RETURN_IF_ERROR(remove_checkpoint(*used, entry->folder));
  }
  std::ranges::reverse(garbage.removed);
  std::ranges::reverse(garbage.kept);
  return garbage;
}

Status remove_checkpoints_after(const std::string& root, int64_t step,
                                const std::shared_ptr<FileCalls>& calls) {
  const std::shared_ptr<FileCalls> used = or_system(calls);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries,
                            list_checkpoints(root, used));
  for (auto entry = entries.rbegin(); entry != entries.rend() && entry->step > step; ++entry)
    MILLRACE_RETURN_IF_ERROR(remove_checkpoint(*used, entry->folder));
  return Ok();
}

}  // namespace millrace::io
