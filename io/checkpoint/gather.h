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

/// How the ranks of one job exchange texts while they save and load together: text from all ranks
/// to all, and file blocks from one rank to another. Each rank has its own object. All ranks must
/// make the same calls in the same order. Not thread-safe. Groups of the executor
/// (executor/collective) can implement it.
class Gather {
 public:
  Gather() = default;
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;
  virtual ~Gather();

  [[nodiscard]] virtual int32_t rank() const = 0;
  [[nodiscard]] virtual int32_t world_size() const = 0;
  /// Contributes the text of this rank and waits for those of all ranks.
  /// \returns the texts by rank
  /// Errors: kDistributed after the deadline, with the ranks that are missing.
  virtual StatusOr<std::vector<std::string>> all_gather(std::string mine) = 0;
  /// Sends a text to each rank and waits for the texts that all ranks send to this one.
  /// \param to  one text per rank, in rank order; includes one for this rank itself
  /// \returns the texts by sending rank
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

/// Ranks that are threads of one process. Must outlive its members.
class ThreadGroup {
 public:
  /// \param world_size  >= 1  \param timeout  for each exchange
  explicit ThreadGroup(int32_t world_size,
                       std::chrono::milliseconds timeout = std::chrono::seconds(60));
  /// The Gather that one rank's thread uses; rank in [0, world_size).
  [[nodiscard]] std::unique_ptr<Gather> member(int32_t rank);

 private:
  friend class ThreadMember;
  using Texts = std::vector<std::string>;
  /// \returns the texts of all ranks, by rank; all ranks get the same object
  StatusOr<std::shared_ptr<const std::vector<Texts>>> exchange(int32_t rank, Texts mine);

  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  int64_t round_ = 0;  ///< number of completed exchanges
  int32_t here_ = 0;
  std::vector<bool> present_;
  std::vector<Texts> texts_;
  std::shared_ptr<const std::vector<Texts>> done_;  ///< texts of the last exchange
};

/// Ranks that are processes with a common folder, for example on a shared file system. In each
/// exchange every rank writes one file (all_to_all(): one per rank), which appears by rename.
///
/// \param folder  created if missing; old files in it are removed in later exchanges
/// \param job  the same for all ranks and different for each save, because the folder may hold
///             files of an interrupted save
/// \param timeout  for each exchange
std::unique_ptr<Gather> folder_gather(std::shared_ptr<FileCalls> calls, const std::string& folder,
                                      const std::string& job, int32_t rank, int32_t world_size,
                                      std::chrono::milliseconds timeout);

}  // namespace millrace::io
