#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/base/status.h"
#include "io/job_key.h"

namespace millrace::executor {

/// Small values by name that all ranks of a job can access. Ranks use it to find each other before
/// a group exists, and to find out which are left after one broke. Thread-safety: one call at a
/// time.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Errors of all functions: kDistributed.
  /// Sets the value of a key for all ranks; a later call replaces it.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  /// Waits until a rank has set the key.
  virtual StatusOr<std::string> get(const std::string& key, int64_t timeout_ms) = 0;
  /// The value, if the key is already set.
  virtual StatusOr<std::optional<std::string>> find(const std::string& key) = 0;
  /// True if this object serves the store, so that it ends with it for all ranks.
  [[nodiscard]] virtual bool is_served_here() const { return false; }

  /// The key that a store sets when a rank is disconnected, if it can detect that.
  static std::string lost_key(int rank) { return "lost/" + std::to_string(rank); }

  /// Limits of keys and values, in bytes.
  static constexpr size_t kMostKeyBytes = 512;
  static constexpr size_t kMostValueBytes = size_t{1} << 20U;
};

/// A store in a folder that all ranks can access; one file per key. The folder is created. Files of
/// an earlier job would be misread, so every job needs its own folder or job name.
/// Errors: kIo.
StatusOr<std::unique_ptr<Store>> open_file_store(const std::string& folder, const std::string& job);

/// How ranks reach a store that one of them serves.
struct TcpStoreOptions {
  std::string endpoint = {};  ///< host:port of the rank that serves
  int rank = 0;               ///< of this process
  bool serve = false;         ///< this rank serves
  std::string job = {};       ///< ranks of another job are rejected
  /// Ranks and store prove to each other that they have this key. Null: no proof.
  std::shared_ptr<const io::JobKey> key = nullptr;
  int64_t join_timeout_ms = 120'000;
};

/// Ranks may start in any order: the others retry until the deadline.
/// Errors: kInvalidArgument for a bad endpoint; kResource if the port is in use; kDistributed if no
/// store responds in time, it belongs to another job, has another key, or another process is
/// connected as this rank.
StatusOr<std::unique_ptr<Store>> open_tcp_store(const TcpStoreOptions& options);

}  // namespace millrace::executor
