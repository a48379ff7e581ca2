#include "io/checkpoint/gather.h"

#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"

namespace millrace::io {
namespace {

Status missing_ranks(const std::vector<int32_t>& missing, int32_t rank,
                     std::chrono::milliseconds timeout) {
  return Status(
      StatusCode::kDistributed,
      fmt::format("rank {} waited {} ms for the other ranks of the checkpoint; missing: {}", rank,
                  timeout.count(), fmt::join(missing, ", ")));
}

class FolderGather final : public Gather {
 public:
  FolderGather(std::shared_ptr<FileCalls> calls, std::string folder, std::string job, int32_t rank,
               int32_t world_size, std::chrono::milliseconds timeout)
      : calls_(std::move(calls)),
        folder_(std::move(folder)),
        job_(std::move(job)),
        rank_(rank),
        world_size_(world_size),
        timeout_(timeout) {}
  // The others may still read the last two exchanges of this rank, so they stay when it ends early.
  ~FolderGather() override = default;

  [[nodiscard]] int32_t rank() const override { return rank_; }
  [[nodiscard]] int32_t world_size() const override { return world_size_; }

  StatusOr<std::vector<std::string>> all_gather(std::string mine) override {
    MILLRACE_RETURN_IF_ERROR(make_folders(*calls_, folder_, false));
    const std::string path = file_of(round_, rank_);
    MILLRACE_RETURN_IF_ERROR(publish(path, mine));
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    std::vector<std::string> texts;
    while (static_cast<int32_t>(texts.size()) < world_size_) {
      const auto next = static_cast<int32_t>(texts.size());
      StatusOr<std::string> text = read(file_of(round_, next));
      if (text.ok()) {
        texts.push_back(*std::move(text));
      } else if (text.status().code() != StatusCode::kNotFound) {
        return std::move(text).status();
      } else if (std::chrono::steady_clock::now() > deadline) {
        return missing_ranks(missing_from(next), rank_, timeout_);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    // Whoever is in this round has read all of the one before.
    if (round_ > 0) MILLRACE_RETURN_IF_ERROR(calls_->remove(file_of(round_ - 1, rank_)));
    if (round_ == 1) MILLRACE_RETURN_IF_ERROR(remove_older_jobs());
    ++round_;
    return texts;
  }

 private:
  // Whoever is in the second exchange of this job has left all jobs before it.
  Status remove_older_jobs() {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_->list(folder_));
    const std::string ending = fmt::format(".{}.gather", rank_);
    for (const std::string& name : names) {
      if (name.ends_with(ending) && !name.starts_with(job_ + "."))
        MILLRACE_RETURN_IF_ERROR(calls_->remove(folder_ + "/" + name));
    }
    return Ok();
  }

  [[nodiscard]] std::string file_of(int64_t round, int32_t rank) const {
    return fmt::format("{}/{}.{}.{}.gather", folder_, job_, round, rank);
  }

  Status publish(const std::string& path, const std::string& text) {
    const std::string temporary = path + ".tmp";
    MILLRACE_RETURN_IF_ERROR(calls_->remove(temporary));
    MILLRACE_ASSIGN_OR_RETURN(const auto file, calls_->create(temporary, text.size()));
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

  [[nodiscard]] std::vector<int32_t> missing_from(int32_t first) const {
    std::vector<int32_t> missing;
    for (int32_t rank = first; rank < world_size_; ++rank)
      if (!read(file_of(round_, rank)).ok()) missing.push_back(rank);
    return missing;
  }

  std::shared_ptr<FileCalls> calls_;
  std::string folder_;
  std::string job_;
  int32_t rank_;
  int32_t world_size_;
  std::chrono::milliseconds timeout_;
  int64_t round_ = 0;
};

}  // namespace

class ThreadMember final : public Gather {
 public:
  ThreadMember(ThreadGroup& group, int32_t rank, int32_t world_size)
      : group_(group), rank_(rank), world_size_(world_size) {}
  [[nodiscard]] int32_t rank() const override { return rank_; }
  [[nodiscard]] int32_t world_size() const override { return world_size_; }
  StatusOr<std::vector<std::string>> all_gather(std::string mine) override {
    return group_.exchange(rank_, std::move(mine));
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

ThreadGroup::ThreadGroup(int32_t world_size, std::chrono::milliseconds timeout)
    : timeout_(timeout),
      present_(static_cast<size_t>(world_size)),
      texts_(static_cast<size_t>(world_size)) {}

std::unique_ptr<Gather> ThreadGroup::member(int32_t rank) {
  return std::make_unique<ThreadMember>(*this, rank, static_cast<int32_t>(texts_.size()));
}

StatusOr<std::vector<std::string>> ThreadGroup::exchange(int32_t rank, std::string mine) {
  std::unique_lock lock(mutex_);
  const int64_t round = round_;
  texts_[static_cast<size_t>(rank)] = std::move(mine);
  present_[static_cast<size_t>(rank)] = true;
  if (++here_ == static_cast<int32_t>(texts_.size())) {
    done_ = texts_;
    here_ = 0;
    present_.assign(texts_.size(), false);
    ++round_;
    arrived_.notify_all();
    return done_;
  }
  // Nobody can end the next exchange before all have left this one.
  if (arrived_.wait_for(lock, timeout_, [&] { return round_ != round; })) return done_;
  std::vector<int32_t> missing;
  for (size_t i = 0; i < present_.size(); ++i)
    if (!present_[i]) missing.push_back(static_cast<int32_t>(i));
  return missing_ranks(missing, rank, timeout_);
}

std::unique_ptr<Gather> folder_gather(std::shared_ptr<FileCalls> calls, const std::string& folder,
                                      const std::string& job, int32_t rank, int32_t world_size,
                                      std::chrono::milliseconds timeout) {
  return std::make_unique<FolderGather>(std::move(calls), folder, job, rank, world_size, timeout);
}

}  // namespace millrace::io
