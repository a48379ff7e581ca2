#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "io/checkpoint/file_calls.h"

namespace millrace::testing {

/// A disk in memory that loses unsynced data on a power failure, fails the n-th call, and can be
/// full. Folders and names are durable once the folder that contains them was synced, data once its
/// file was.
class MemoryDisk final : public io::FileCalls {
 public:
  /// How much of the unsynced data a power failure destroys.
  enum class Loss {
    kAll,         ///< all of it
    kData,        ///< names and renames are kept, data is lost: they were written in another order
    kLaterBytes,  ///< names are kept, and the first bytes of the data of each file
    kNothing,     ///< everything is kept
  };

  /// The call with this number, from 0, and all later ones have no effect: the power is off.
  void cut_power_at(int64_t call) { power_ends_at_ = call; }
  /// The call with this number fails, later ones do not.
  void fail_at(int64_t call) { fails_at_ = call; }
  /// A sync that reports success but does nothing.
  void lose_syncs() { syncs_ = false; }
  void set_capacity(uint64_t bytes) { capacity_ = bytes; }
  /// Replaces the bytes of a file; not counted as a call.
  void put(const std::string& path, std::string bytes);
  /// Number of calls so far that change the disk.
  [[nodiscard]] int64_t calls() const { return calls_; }
  /// The disk after the power failure. \param kept_bytes  of each file, for kLaterBytes
  [[nodiscard]] std::shared_ptr<MemoryDisk> after_loss(Loss loss, uint64_t kept_bytes = 0) const;
  /// Paths of all files.
  [[nodiscard]] std::set<std::string> files() const;

  StatusOr<std::unique_ptr<io::WritableFile>> create(const std::string& path,
                                                     const io::NewFile& file) override;
  StatusOr<std::unique_ptr<io::ReadableFile>> open(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  StatusOr<bool> make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  StatusOr<std::vector<std::string>> list(const std::string& path) override;

 private:
  struct Content {
    std::string now;
    std::string durable;
  };
  using Names = std::map<std::string, std::shared_ptr<Content>>;  // null content: a folder
  class Writing;
  class Reading;

  Status count_call(const std::string& path);

  std::mutex mutex_;
  Names names_;
  Names durable_;
  int64_t calls_ = 0;
  std::optional<int64_t> power_ends_at_;
  std::optional<int64_t> fails_at_;
  std::optional<uint64_t> capacity_;
  bool syncs_ = true;
};

}  // namespace millrace::testing
