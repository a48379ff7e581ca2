#include "io/checkpoint/spread_checkpoint.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "io/checkpoint/exchange.h"
#include "io/checkpoint/write_parts.h"

namespace millrace::io {
namespace {

// A block of a file, as requested from another rank.
struct Place {
  int32_t file = 0;
  uint64_t begin = 0;  // offset in the file
  uint64_t size = 0;

  auto operator<=>(const Place&) const = default;
};

Place place_of(const BlockRead& block) {
  return {block.wanted->stored->file, block.at(), block.size()};
}

}  // namespace

// One exchange of blocks: the ranks send requests, then send the requested blocks in rounds. All
// ranks know the number of rounds, so no rank waits for one that has finished.
class SpreadCheckpoint::Exchange {
 public:
  Exchange(SpreadCheckpoint& owner, const std::vector<BlockRead>& remote)
      : owner_(owner),
        gather_(*owner.gather_),
        ranks_(static_cast<size_t>(gather_.world_size())),
        limit_(std::max<uint64_t>(owner.max_sent_ / ranks_, 1)),
        asked_(ranks_) {
    for (const BlockRead& block : remote) readers_[place_of(block)].push_back(&block);
  }

  Status run() {
    MILLRACE_RETURN_IF_ERROR(ask());
    MILLRACE_ASSIGN_OR_RETURN(const int64_t rounds, count_rounds());
    Status mine;
    for (int64_t round = 0; round < rounds; ++round) {
      std::vector<std::string> to(ranks_);
      if (mine.ok()) mine = fill(to);
      MILLRACE_RETURN_IF_ERROR(send(to, mine));
    }
    // Tell the other ranks about errors that a rank found in the last round.
    return exchange(gather_, std::move(mine), {}).status();
  }

 private:
  // Requests each block once, from a rank that can read it. Different ranks ask different holders,
  // to spread the load.
  Status ask() {
    std::vector<std::vector<int64_t>> wanted(ranks_);
    for (const auto& [place, blocks] : readers_) {
      const std::vector<int32_t>& holders = owner_.holders_[static_cast<size_t>(place.file)];
      const auto turn = static_cast<size_t>(gather_.rank() + place.file) % holders.size();
      std::vector<int64_t>& list = wanted[static_cast<size_t>(holders[turn])];
      list.insert(list.end(), {place.file, static_cast<int64_t>(place.begin),
                               static_cast<int64_t>(place.size)});
    }
    std::vector<std::string> texts;
    texts.reserve(wanted.size());
    for (const std::vector<int64_t>& list : wanted) texts.push_back(numbers_text(list));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> from,
                              gather_.all_to_all(std::move(texts)));
    for (size_t rank = 0; rank < ranks_; ++rank)
      MILLRACE_RETURN_IF_ERROR(read_questions(from[rank], rank));
    return Ok();
  }

  Status read_questions(const std::string& text, size_t rank) {
    MILLRACE_ASSIGN_OR_RETURN(const JsonValue value, parse_json(text));
    const auto numbers = value.counts();
    if (!numbers || numbers->size() % 3 != 0) return sent_malformed(rank);
    for (size_t i = 0; i < numbers->size(); i += 3) {
      const int64_t file = (*numbers)[i];
      const auto begin = static_cast<uint64_t>((*numbers)[i + 1]);
      const auto size = static_cast<uint64_t>((*numbers)[i + 2]);
      if (file >= static_cast<int64_t>(owner_.local_.files_.size()) ||
          owner_.local_.files_[static_cast<size_t>(file)] == nullptr ||
          size > owner_.manifest().block_bytes)
        return sent_malformed(rank);
      asked_[rank].push_back({static_cast<int32_t>(file), begin, size});
    }
    return Ok();
  }

  // Number of blocks sent to a rank per round.
  [[nodiscard]] size_t blocks_a_round() const {
    return std::max<size_t>(1, limit_ / std::max<uint64_t>(1, owner_.manifest().block_bytes));
  }

  StatusOr<int64_t> count_rounds() {
    size_t most = 0;
    for (const std::vector<Place>& places : asked_) most = std::max(most, places.size());
    const size_t each = blocks_a_round();
    MILLRACE_ASSIGN_OR_RETURN(
        const auto all,
        exchange_numbers(gather_, Ok(), {static_cast<int64_t>((most + each - 1) / each)}));
    int64_t rounds = 0;
    for (const std::vector<int64_t>& own : all) {
      if (own.size() != 1) return Internal("a rank did not send its number of rounds");
      rounds = std::max(rounds, own.front());
    }
    return rounds;
  }

  // Appends the next blocks for each rank to its message.
  Status fill(std::vector<std::string>& to) {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      std::vector<Place>& places = asked_[rank];
      const size_t count = std::min(blocks_a_round(), places.size() - next(rank));
      for (size_t i = 0; i < count; ++i) {
        const Place& place = places[next(rank)++];
        const size_t at = to[rank].size();
        to[rank].resize(at + place.size);
        MILLRACE_RETURN_IF_ERROR(owner_.local_.files_[static_cast<size_t>(place.file)]->read(
            place.begin, std::as_writable_bytes(std::span(to[rank]).subspan(at))));
      }
      owner_.sent_ += to[rank].size();
    }
    return Ok();
  }

  size_t& next(size_t rank) {
    next_.resize(ranks_);
    return next_[rank];
  }

  // Sends the blocks of a round and processes the received ones. \param mine  error of this rank so
  // far: sent to all ranks in place of blocks; receives an error that is found here
  Status send(std::vector<std::string>& to, Status& mine) {
    const std::string failure = mine.ok() ? std::string() : failure_text(mine);
    for (std::string& text : to) {
      if (mine.ok()) {
        text.push_back('b');
      } else {
        text = failure + 'e';
      }
    }
    MILLRACE_ASSIGN_OR_RETURN(std::vector<std::string> from, gather_.all_to_all(std::move(to)));
    if (!mine.ok()) return mine;
    for (size_t rank = 0; rank < from.size(); ++rank) {
      if (from[rank].empty()) return sent_malformed(rank);
      const bool failed = from[rank].back() == 'e';
      from[rank].pop_back();
      if (failed) return failure_from(from[rank], rank);
    }
    for (size_t rank = 0; rank < from.size() && mine.ok(); ++rank) mine = take(from[rank], rank);
    return Ok();
  }

  // Verifies and delivers the blocks received from a rank; they are in the order of the requests.
  Status take(const std::string& text, size_t rank) {
    owner_.received_ += text.size();
    std::span<const std::byte> rest = std::as_bytes(std::span(text));
    auto& place = expected(rank);
    while (!rest.empty()) {
      while (place != readers_.end() && !comes_from(place->first, rank)) ++place;
      if (place == readers_.end() || place->first.size > rest.size()) return sent_malformed(rank);
      const auto bytes = rest.first(place->first.size);
      rest = rest.subspan(bytes.size());
      const Checksum found = checksum_of(bytes);
      for (const BlockRead* const block : place->second) {
        const WantedBytes& wanted = *block->wanted;
        Status status = compare_block(*wanted.stored, block->index, found,
                                      owner_.manifest().block_bytes, *wanted.owner);
        if (!status.ok()) {
          const StoredFile& file =
              owner_.manifest().files[static_cast<size_t>(wanted.stored->file)];
          return std::move(status)
              .in_file(owner_.folder() + "/" + file.name)
              .with_note(fmt::format("the file is on the disk of rank {}", rank));
        }
        wanted.sink->take(block->begin, bytes);
      }
      ++place;
    }
    return Ok();
  }

  [[nodiscard]] bool comes_from(const Place& place, size_t rank) const {
    const std::vector<int32_t>& holders = owner_.holders_[static_cast<size_t>(place.file)];
    const auto turn = static_cast<size_t>(gather_.rank() + place.file) % holders.size();
    return static_cast<size_t>(holders[turn]) == rank;
  }

  using Readers = std::map<Place, std::vector<const BlockRead*>>;
  Readers::iterator& expected(size_t rank) {
    if (expected_.empty()) expected_.assign(ranks_, readers_.begin());
    return expected_[rank];
  }

  SpreadCheckpoint& owner_;
  Gather& gather_;
  size_t ranks_;
  uint64_t limit_;
  Readers readers_;                          // blocks that this rank reads from others
  std::vector<Readers::iterator> expected_;  // by sending rank: first candidate for its next block
  std::vector<std::vector<Place>> asked_;    // by rank: blocks that it requested from this rank
  std::vector<size_t> next_;                 // by rank: index of the next block in asked_
};

Status SpreadCheckpoint::agree_on_manifest() {
  const std::string path = local_.folder_ + "/" + std::string(kManifestName);
  Status status;
  int64_t age = 0;
  std::string text;
  if (StatusOr<std::string> own = Checkpoint::read_manifest(*local_.options_.calls, local_.folder_);
      own.ok()) {
    text = *std::move(own);
    StatusOr<Manifest> parsed = parse_manifest(text, path);
    status = parsed.status();
    if (parsed.ok()) {
      local_.manifest_ = *std::move(parsed);
      age = age_of(local_.manifest_);
    }
  } else if (own.status().code() != StatusCode::kNotFound) {
    status = std::move(own).status();
  }
  JsonWriter out(0);
  out.begin_array().value(age).value(checksum_of(text).text()).end_array();
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                            exchange(*gather_, std::move(status), out.take()));
  std::vector<std::pair<int64_t, std::string>> held;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto* const items = all[rank].get_if<JsonItems>();
    const bool whole = items != nullptr && items->size() == 2;
    const auto number = whole ? (*items)[0].count() : std::nullopt;
    const auto* const digits = whole ? (*items)[1].get_if<std::string>() : nullptr;
    if (!number || digits == nullptr) return sent_malformed(rank);
    held.emplace_back(*number, *digits);
  }
  const auto newest = std::ranges::max_element(
      held, {}, [](const auto& rank) { return rank.first; });  // the lowest of several ranks
  if (newest->first == 0) {
    return NotFound("no checkpoint: no rank has {}, so it was never completed", kManifestName)
        .in_file(local_.folder_);
  }
  if (std::ranges::all_of(held, [&](const auto& rank) { return rank == *newest; })) return Ok();
  const bool gives = newest - held.begin() == gather_->rank();
  MILLRACE_ASSIGN_OR_RETURN(std::vector<std::string> texts,
                            gather_->all_gather(gives ? text : std::string()));
  StatusOr<Manifest> parsed =
      parse_manifest(texts[static_cast<size_t>(newest - held.begin())], path);
  status = parsed.status();
  if (parsed.ok()) local_.manifest_ = *std::move(parsed);
  return exchange(*gather_, std::move(status), {}).status();
}

Status SpreadCheckpoint::find_files() {
  const std::vector<StoredFile>& files = local_.manifest_.files;
  std::vector<int64_t> seen;
  Status status;
  for (size_t i = 0; i < files.size() && status.ok(); ++i) {
    const std::string path = local_.folder_ + "/" + files[i].name;
    StatusOr<std::unique_ptr<ReadableFile>> file = local_.options_.calls->open(path);
    local_.files_.emplace_back();
    if (!file.ok()) {
      if (file.status().code() != StatusCode::kNotFound) status = std::move(file).status();
      continue;
    }
    if ((*file)->size() != files[i].size) {
      status =
          InvalidData("expected {} bytes, found {}", files[i].size, (*file)->size()).in_file(path);
      continue;
    }
    local_.files_.back() = *std::move(file);
    seen.push_back(static_cast<int64_t>(i));
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto all, exchange_numbers(*gather_, std::move(status), seen));
  holders_.assign(files.size(), {});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (const int64_t file : all[rank]) {
      if (file >= static_cast<int64_t>(files.size())) return sent_malformed(rank);
      holders_[static_cast<size_t>(file)].push_back(static_cast<int32_t>(rank));
    }
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (!holders_[i].empty()) continue;
    return NotFound("the file is on the disk of none of the {} ranks", all.size())
        .in_file(local_.folder_ + "/" + files[i].name);
  }
  return Ok();
}

StatusOr<SpreadCheckpoint> SpreadCheckpoint::open(const std::string& folder, Gather& gather,
                                                  const SpreadLoadOptions& options) {
  SpreadCheckpoint opened(Checkpoint::nothing_of(folder, options.load), gather, options);
  MILLRACE_RETURN_IF_ERROR(opened.agree_on_manifest());
  MILLRACE_RETURN_IF_ERROR(opened.find_files());
  return opened;
}

Status SpreadCheckpoint::read_together(Status mine, const std::vector<WantedBytes>& wanted) {
  std::vector<BlockRead> local;
  std::vector<BlockRead> remote;
  for (const BlockRead& block : blocks_of(wanted, manifest().block_bytes)) {
    const bool here = local_.files_[static_cast<size_t>(block.wanted->stored->file)] != nullptr;
    (here ? local : remote).push_back(block);
  }
  if (mine.ok()) mine = local_.read_to_sinks(local);
  MILLRACE_ASSIGN_OR_RETURN(
      const auto needs,
      exchange_numbers(*gather_, std::move(mine), {static_cast<int64_t>(remote.size())}));
  const bool any = std::ranges::any_of(
      needs, [](const std::vector<int64_t>& rank) { return rank.empty() || rank[0] > 0; });
  return any ? Exchange(*this, remote).run() : Ok();
}

Status SpreadCheckpoint::load_state_dict(const std::vector<LoadTarget>& targets,
                                         const LoadStateOptions& options) {
  return load_state_with(manifest(), folder(), targets, options,
                         [this](Status mine, const std::vector<WantedBytes>& wanted) {
                           return read_together(std::move(mine), wanted);
                         });
}

StatusOr<std::string> SpreadCheckpoint::load_record(std::string_view name, int32_t rank) {
  const StoredRecord* const record = manifest().find_record(name, rank);
  Status status;
  std::string bytes;
  std::vector<WantedBytes> wanted;
  if (record == nullptr) {
    status = NotFound("the checkpoint has no record '{}' of rank {}", name, rank).in_file(folder());
  } else {
    bytes.resize(record->data.size());
    wanted.push_back(want_all(record->data, record->name,
                              std::as_writable_bytes(std::span(bytes.data(), bytes.size()))));
  }
  MILLRACE_RETURN_IF_ERROR(read_together(std::move(status), wanted));
  return bytes;
}

StatusOr<std::vector<Status>> SpreadCheckpoint::verify() {
  const std::vector<Status> own = local_.verify_files(
      [this](size_t file) { return holders_[file].front() == gather_->rank(); }, {});
  // Serialize each finding like an error.
  JsonWriter out(0);
  out.begin_array();
  for (const Status& status : own) out.value(failure_text(status));
  out.end_array();
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all, exchange(*gather_, Ok(), out.take()));
  std::vector<Status> wrong;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<RankItem> items, items_of_ranks(all));
  for (const auto& [rank, item] : items) {
    const auto* const text = item->get_if<std::string>();
    if (text == nullptr) return sent_malformed(rank);
    wrong.push_back(failure_from(*text, rank));
  }
  return wrong;
}

}  // namespace millrace::io
