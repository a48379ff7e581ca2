#include "io/checkpoint/spread_folder.h"

#include <map>
#include <utility>

#include "framework/base/errors.h"
#include "io/checkpoint/commit.h"
#include "io/checkpoint/exchange.h"
#include "io/checkpoint/folder.h"

namespace millrace::io {

StatusOr<std::vector<SpreadEntry>> list_spread_checkpoints(
    const std::string& root, Gather& gather, const std::shared_ptr<FileCalls>& calls) {
  StatusOr<std::vector<CheckpointEntry>> own = list_checkpoints(root, calls);
  std::vector<int64_t> facts;
  if (own.ok()) {
    for (const CheckpointEntry& entry : *own)
      facts.insert(facts.end(), {entry.step, entry.complete ? 1 : 0});
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto all,
                            exchange_numbers(gather, std::move(own).status(), facts));
  std::map<int64_t, bool> steps;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() % 2 != 0) return sent_malformed(rank);
    for (size_t i = 0; i < all[rank].size(); i += 2) {
      bool& complete = steps[all[rank][i]];
      complete = complete || all[rank][i + 1] != 0;
    }
  }
  std::vector<SpreadEntry> entries;
  for (const auto& [step, complete] : steps) entries.push_back({step, complete});
  return entries;
}

StatusOr<LastSpreadCheckpoint> open_last_spread_checkpoint(const std::string& root, Gather& gather,
                                                           bool verify,
                                                           const SpreadLoadOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<SpreadEntry> entries,
                            list_spread_checkpoints(root, gather, options.load.calls));
  std::vector<Status> skipped;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->complete) continue;
    // Errors are the same on all ranks, except if a rank was lost.
    StatusOr<SpreadCheckpoint> checkpoint =
        SpreadCheckpoint::open(checkpoint_folder(root, entry->step), gather, options);
    Status status = checkpoint.status();
    if (status.ok() && verify) {
      MILLRACE_ASSIGN_OR_RETURN(std::vector<Status> wrong, checkpoint->verify());
      if (!wrong.empty()) status = std::move(wrong.front());
    }
    if (status.ok())
      return LastSpreadCheckpoint{entry->step, *std::move(checkpoint), std::move(skipped)};
    if (status.code() == StatusCode::kDistributed) return status;
    skipped.push_back(std::move(status));
  }
  return none_can_be_loaded(root, skipped);
}

Status collect_spread_garbage(const std::string& root, int keep, Gather& gather,
                              const std::shared_ptr<FileCalls>& calls) {
  if (keep < 1) return InvalidArgument("keep {}: expected at least 1 checkpoint", keep);
  const std::shared_ptr<FileCalls> used = calls == nullptr ? system_file_calls() : calls;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<SpreadEntry> entries,
                            list_spread_checkpoints(root, gather, used));
  std::vector<std::string> old;
  int complete = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->complete) ++complete;
    const bool removed = entry->complete ? complete > keep : complete > 0;
    if (removed) old.push_back(checkpoint_folder(root, entry->step));
  }
  Status status;
  for (const std::string& folder : old)
    if (status.ok()) status = withdraw_checkpoint(*used, folder);
  MILLRACE_RETURN_IF_ERROR(exchange(gather, std::move(status), {}).status());
  for (const std::string& folder : old)
    if (status.ok()) status = remove_withdrawn(*used, folder);
  return exchange(gather, std::move(status), {}).status();
}

}  // namespace millrace::io
