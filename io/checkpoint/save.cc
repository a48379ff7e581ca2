#include "io/checkpoint/save.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "io/checkpoint/commit.h"
#include "io/checkpoint/exchange.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/plan.h"
#include "io/checkpoint/write_parts.h"

namespace millrace::io {
namespace {

class Save {
 public:
  Save(const LocalState& state, std::string folder, Gather& gather,
       const CheckpointSaveOptions& options)
      : state_(state),
        folder_(std::move(folder)),
        gather_(gather),
        options_(options),
        calls_(options.calls == nullptr ? system_file_calls() : options.calls),
        target_(*calls_, folder_, options) {}

  Status run() {
    Status status = try_run();
    if (!status.ok()) target_.roll_back();
    return status;
  }

 private:
  [[nodiscard]] bool coordinates() const { return gather_.rank() == options_.coordinator; }

  Status try_run() {
    if (options_.coordinator < 0 || options_.coordinator >= gather_.world_size()) {
      return InvalidArgument("coordinator rank {}: expected one of {} ranks", options_.coordinator,
                             gather_.world_size());
    }
    MILLRACE_RETURN_IF_ERROR(agree_on_plan());
    MILLRACE_RETURN_IF_ERROR(write_data());
    // From here on only the coordinator knows whether the manifest is there, so it alone removes
    // files after an error.
    if (!coordinates()) target_.forget_written();
    return exchange(gather_, coordinates() ? commit() : Ok(), {}).status();
  }

  // First exchange: the folder is ready, and everybody knows who writes what.
  Status agree_on_plan() {
    Status status = coordinates() ? target_.prepare() : Ok();
    RankClaims claims;
    if (StatusOr<RankClaims> mine = claims_of(state_); mine.ok()) {
      claims = *std::move(mine);
    } else if (status.ok()) {
      status = std::move(mine).status();
    }
    JsonWriter out(0);
    out.begin_array().value(target_.generation()).value(claims_text(claims)).end_array();
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                              exchange(gather_, std::move(status), out.take()));
    std::vector<RankClaims> ranks;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto* const items = all[rank].get_if<JsonItems>();
      const auto* const text =
          items == nullptr || items->size() != 2 ? nullptr : (*items)[1].get_if<std::string>();
      const auto generation = text == nullptr ? std::nullopt : (*items)[0].count();
      if (!generation) return Internal("rank {} sent no claims", rank);
      if (static_cast<int32_t>(rank) == options_.coordinator) generation_ = *generation;
      MILLRACE_ASSIGN_OR_RETURN(RankClaims parsed, parse_claims(*text));
      ranks.push_back(std::move(parsed));
    }
    MILLRACE_ASSIGN_OR_RETURN(plan_, make_save_plan(ranks, options_.coordinator));
    return Ok();
  }

  // Second exchange: what this rank has written.
  Status write_data() {
    WriteParts writer(*calls_, folder_, options_);
    StatusOr<WrittenParts> mine = writer.write(state_, plan_, gather_.rank(), generation_);
    for (const std::string& name : writer.created()) target_.add_written(name);
    std::string text;
    Status status;
    if (mine.ok()) {
      text = parts_text(*mine);
    } else {
      status = std::move(mine).status();
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                              exchange(gather_, std::move(status), std::move(text)));
    if (!coordinates()) return Ok();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      MILLRACE_ASSIGN_OR_RETURN(WrittenParts parts, parse_parts(all[rank]));
      parts_.push_back(std::move(parts));
    }
    return Ok();
  }

  Status commit() {
    MILLRACE_ASSIGN_OR_RETURN(Manifest manifest, join_parts(plan_, parts_));
    manifest.step = options_.step;
    manifest.world_size = gather_.world_size();
    manifest.block_bytes = options_.block_bytes;
    manifest.user = state_.user;
    for (const StoredFile& file : manifest.files) target_.add_written(file.name);
    return target_.commit(manifest);
  }

  const LocalState& state_;
  std::string folder_;
  Gather& gather_;
  const CheckpointSaveOptions& options_;
  std::shared_ptr<FileCalls> calls_;
  CheckpointFolder target_;
  int64_t generation_ = 0;
  SavePlan plan_;
  std::vector<WrittenParts> parts_;  // by rank; of the coordinator
};

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

}  // namespace

Status save_state_dict(const LocalState& state, const std::string& folder, Gather& gather,
                       const CheckpointSaveOptions& options) {
  if (folder.empty()) return InvalidArgument("the folder of the checkpoint has no name");
  return Save(state, without_slash(folder), gather, options).run();
}

Status save_state_dict(const LocalState& state, const std::string& folder,
                       const CheckpointSaveOptions& options) {
  SingleRank alone;
  return save_state_dict(state, folder, alone, options);
}

}  // namespace millrace::io
