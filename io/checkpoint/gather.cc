#include "io/checkpoint/gather.h"

#include <thread>
#include <utility>

#include <fmt/ranges.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"

namespace millrace::io {
namespace gather {
namespace {

Status missing_ranks(const std::vector<int32_t>& missing, int32_t rank,
                     std::chrono::milliseconds timeout) {
  return Status(
      StatusCode::kDistributed,
      fmt::format("rank {} waited {} ms for the other ranks of the checkpoint; missing: {}", rank,
                  timeout.count(), fmt::join(missing, ", ")));
}

constexpr int32_t kAllReaders = -1;
constexpr const char* kGatherEnding = ".gather";

class Folder final : public Gather {
 public:
  Folder(std::shared_ptr<FileCalls> calls, std::string folder, std::string job, int32_t rank,
         int32_t world_size, std::chrono::milliseconds timeout)
      : calls_(std::move(calls)),
        folder_(std::move(folder)),
        job_(std::move(job)),
        rank_(rank),
        world_size_(world_size),
        timeout_(timeout) {}
  // The files of the last two exchanges are kept: other ranks may still read them if this rank ends
  // early.
  ~Folder() override = default;

  [[nodiscard]] int32_t rank() const override { return rank_; }
  [[nodiscard]] int32_t world_size() const override { return world_size_; }

  StatusOr<std::vector<std::string>> all_gather(std::string mine) override {
    return exchange({std::move(mine)}, true);
  }
  StatusOr<std::vector<std::string>> all_to_all(std::vector<std::string> to) override {
    return exchange(std::move(to), false);
  }

 private:
  // `mine` has one text for all ranks, or one text for each rank, in a separate file each.
  StatusOr<std::vector<std::string>> exchange(std::vector<std::string> mine, bool for_all) {
    MILLRACE_RETURN_IF_ERROR(make_folders(*calls_, folder_, /*sync=*/false));
    for (size_t to = 0; to < mine.size(); ++to) {
      const auto reader = for_all ? kAllReaders : static_cast<int32_t>(to);
      MILLRACE_RETURN_IF_ERROR(publish(file_of(round_, rank_, reader), mine[to]));
    }
    MILLRACE_ASSIGN_OR_RETURN(std::vector<std::string> texts,
                              wait_for_all(for_all ? kAllReaders : rank_));
    // Every rank that takes part in this round has read all files of the round before.
    for (const std::string& path : std::exchange(written_, std::exchange(writing_, {})))
      MILLRACE_RETURN_IF_ERROR(calls_->remove(path));
    if (round_ == 1) MILLRACE_RETURN_IF_ERROR(remove_older_jobs());
    ++round_;
    return texts;
  }

  StatusOr<std::vector<std::string>> wait_for_all(int32_t reader) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    std::vector<std::string> texts;
    while (static_cast<int32_t>(texts.size()) < world_size_) {
      const auto next = static_cast<int32_t>(texts.size());
      StatusOr<std::string> text = read(file_of(round_, next, reader));
      if (text.ok()) {
        texts.push_back(*std::move(text));
      } else if (text.status().code() != StatusCode::kNotFound) {
        return std::move(text).status();
      } else if (std::chrono::steady_clock::now() > deadline) {
        return missing_ranks(missing_from(next, reader), rank_, timeout_);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return texts;
  }

  // Every rank in the second exchange of this job has finished all earlier jobs.
  Status remove_older_jobs() {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_->list(folder_));
    const std::string own = fmt::format(".{}", rank_);
    for (const std::string& name : names) {
      llvm::StringRef rest(name);
      if (!rest.consume_back(kGatherEnding)) continue;
      rest = rest.rsplit('.').first;  // remove the reader
      if (rest.endswith(own) && !rest.startswith(job_ + "."))
        MILLRACE_RETURN_IF_ERROR(calls_->remove(folder_ + "/" + name));
    }
    return Ok();
  }

  // "<job>.<round>.<rank>.<reader>.gather"
  [[nodiscard]] std::string file_of(int64_t round, int32_t rank, int32_t reader) const {
    const std::string who = reader == kAllReaders ? "all" : std::to_string(reader);
    return fmt::format("{}/{}.{}.{}.{}{}", folder_, job_, round, rank, who, kGatherEnding);
  }

  Status publish(const std::string& path, const std::string& text) {
    writing_.push_back(path);
    const std::string temporary = path + ".tmp";
    MILLRACE_RETURN_IF_ERROR(calls_->remove(temporary));
    MILLRACE_ASSIGN_OR_RETURN(const auto file, calls_->create(temporary, {.bytes = text.size()}));
    const std::string_view piece = text;
    MILLRACE_RETURN_IF_ERROR(file->write({&piece, 1}));
    MILLRACE_RETURN_IF_ERROR(file->close());
    return calls_->rename(temporary, path);
  }

  [[nodiscard]] StatusOr<std::string> read(const std::string& path) const {
    MILLRACE_ASSIGN_OR_RETURN(const auto file, calls_->open(path));
    std::string text(file->size(), '\0');
    MILLRACE_RETURN_IF_ERROR(
        file->read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
    return text;
  }

  [[nodiscard]] std::vector<int32_t> missing_from(int32_t first, int32_t reader) const {
    std::vector<int32_t> missing;
    for (int32_t rank = first; rank < world_size_; ++rank)
      if (!read(file_of(round_, rank, reader)).ok()) missing.push_back(rank);
    return missing;
  }

  std::shared_ptr<FileCalls> calls_;
  std::string folder_;
  std::string job_;
  int32_t rank_;
  int32_t world_size_;
  std::chrono::milliseconds timeout_;
  int64_t round_ = 0;
  std::vector<std::string> writing_;  // files of this round
  std::vector<std::string> written_;  // files of the previous round
};

}  // namespace
}  // namespace gather

class ThreadMember final : public Gather {
 public:
  ThreadMember(ThreadGroup& group, int32_t rank, int32_t world_size)
      : group_(group), rank_(rank), world_size_(world_size) {}
  [[nodiscard]] int32_t rank() const override { return rank_; }
  [[nodiscard]] int32_t world_size() const override { return world_size_; }
  StatusOr<std::vector<std::string>> all_gather(std::string mine) override {
    MILLRACE_ASSIGN_OR_RETURN(const auto all, group_.exchange(rank_, {std::move(mine)}));
    std::vector<std::string> texts;
    for (const std::vector<std::string>& rank : *all) texts.push_back(rank.front());
    return texts;
  }
  StatusOr<std::vector<std::string>> all_to_all(std::vector<std::string> to) override {
    MILLRACE_ASSIGN_OR_RETURN(const auto all, group_.exchange(rank_, std::move(to)));
    std::vector<std::string> texts;
    for (const std::vector<std::string>& rank : *all)
      texts.push_back(rank[static_cast<size_t>(rank_)]);
    return texts;
  }

 private:
  ThreadGroup& group_;
  int32_t rank_;
  int32_t world_size_;
};

Gather::~Gather() = default;

StatusOr<std::vector<std::string>> SingleRank::all_gather(std::string mine) {
  std::vector<std::string> texts;
  texts.push_back(std::move(mine));
  return texts;
}

StatusOr<std::vector<std::string>> SingleRank::all_to_all(std::vector<std::string> to) {
  return to;
}

ThreadGroup::ThreadGroup(int32_t world_size, std::chrono::milliseconds timeout)
    : timeout_(timeout),
      present_(static_cast<size_t>(world_size)),
      texts_(static_cast<size_t>(world_size)) {}

std::unique_ptr<Gather> ThreadGroup::member(int32_t rank) {
  return std::make_unique<ThreadMember>(*this, rank, static_cast<int32_t>(texts_.size()));
}

StatusOr<std::shared_ptr<const std::vector<ThreadGroup::Texts>>> ThreadGroup::exchange(int32_t rank,
                                                                                       Texts mine) {
  std::unique_lock lock(mutex_);
  const int64_t round = round_;
  texts_[static_cast<size_t>(rank)] = std::move(mine);
  present_[static_cast<size_t>(rank)] = true;
  if (++here_ == static_cast<int32_t>(present_.size())) {
    done_ = std::make_shared<const std::vector<Texts>>(std::exchange(texts_, {}));
    texts_.resize(present_.size());
    here_ = 0;
    present_.assign(present_.size(), false);
    ++round_;
    arrived_.notify_all();
    return done_;
  }
  // The next exchange cannot complete before every rank has left this one.
  if (arrived_.wait_for(lock, timeout_, [&] { return round_ != round; })) return done_;
  std::vector<int32_t> missing;
  for (size_t i = 0; i < present_.size(); ++i)
    if (!present_[i]) missing.push_back(static_cast<int32_t>(i));
  return gather::missing_ranks(missing, rank, timeout_);
}

std::unique_ptr<Gather> folder_gather(std::shared_ptr<FileCalls> calls, const std::string& folder,
                                      const std::string& job, int32_t rank, int32_t world_size,
                                      std::chrono::milliseconds timeout) {
  return std::make_unique<gather::Folder>(std::move(calls), folder, job, rank, world_size, timeout);
}

}  // namespace millrace::io
