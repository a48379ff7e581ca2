#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"

namespace millrace::io {

/// How the ranks of one job exchange texts while they save and load together: facts of all for all,
/// and blocks of files from one rank to another. Each rank has its own. All make the same calls in
/// the same order. Not thread-safe. Groups of the executor fit it (executor/collective).
class Gather {
 public:
  Gather() = default;
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;
  virtual ~Gather();

  [[nodiscard]] virtual int32_t rank() const = 0;
  [[nodiscard]] virtual int32_t world_size() const = 0;
  /// Hands in the text of this rank and waits for those of all.
  /// \returns the texts by rank
  /// Errors: kDistributed behind the deadline, with the ranks that are missing.
  virtual StatusOr<std::vector<std::string>> all_gather(std::string mine) = 0;
  /// Hands in a text for each rank and waits for those of all for this one.
  /// \param to  by rank, as many as there are ranks; one may be meant for this rank itself
  /// \returns the texts by the rank that they come from
  /// Errors: as all_gather().
  virtual StatusOr<std::vector<std::string>> all_to_all(std::vector<std::string> to) = 0;
};

/// A job of one rank.
class SingleRank final : public Gather {
 public:
  [[nodiscard]] int32_t rank() const override { return 0; }
  [[nodiscard]] int32_t world_size() const override { return 1; }
  StatusOr<std::vector<std::string>> all_gather(std::string mine) override;
  StatusOr<std::vector<std::string>> all_to_all(std::vector<std::string> to) override;
};

/// Ranks that are threads of one process. Lives longer than its members.
class ThreadGroup {
 public:
  /// \param world_size  >= 1  \param timeout  of each exchange
  explicit ThreadGroup(int32_t world_size,
                       std::chrono::milliseconds timeout = std::chrono::seconds(60));
  /// The end that one rank's thread uses; rank in [0, world_size).
  [[nodiscard]] std::unique_ptr<Gather> member(int32_t rank);

 private:
  friend class ThreadMember;
  using Texts = std::vector<std::string>;
  /// \returns what all ranks have handed in, by rank; the same object for all
  StatusOr<std::shared_ptr<const std::vector<Texts>>> exchange(int32_t rank, Texts mine);

  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  int64_t round_ = 0;  ///< exchanges that are over
  int32_t here_ = 0;
  std::vector<bool> present_;
  std::vector<Texts> texts_;
  std::shared_ptr<const std::vector<Texts>> done_;  ///< texts of the last exchange
};

/// Ranks that are processes with a folder in common, for example on a shared file system: each
/// exchange is a file a rank, which appears by rename.
///
/// \param folder   is made; files of it are removed as the exchanges go on
/// \param job      the same for all ranks and new for each save: a folder may hold what a save that
///                 was cut off has left
/// \param timeout  of each exchange
std::unique_ptr<Gather> folder_gather(std::shared_ptr<FileCalls> calls, const std::string& folder,
                                      const std::string& job, int32_t rank, int32_t world_size,
                                      std::chrono::milliseconds timeout);

}  // namespace millrace::io
