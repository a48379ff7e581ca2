#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/base/status.h"

namespace millrace::executor {

/// Small values by name that all ranks of a job see: how they find each other before a group
/// exists, and who is left after one broke. Thread-safety: one call at a time.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Errors of all functions: kDistributed.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  /// Waits until somebody has set the key.
  virtual StatusOr<std::string> get(const std::string& key, int64_t timeout_ms) = 0;
  /// The value if the key is set by now.
  virtual StatusOr<std::optional<std::string>> find(const std::string& key) = 0;
  /// True if the store ends with this object, for everybody.
  [[nodiscard]] virtual bool is_served_here() const { return false; }

  /// Set by a store that sees ranks go: this rank is not connected any more.
  static std::string lost_key(int rank) { return "lost/" + std::to_string(rank); }

  static constexpr size_t kMostKeyBytes = 512;
  static constexpr size_t kMostValueBytes = size_t{1} << 20U;
};

/// A store in a folder that all ranks see; one file a key. The folder is made. Files of an earlier
/// job in it would mislead, so every job needs a folder (or a job name) of its own.
/// Errors: kIo.
StatusOr<std::unique_ptr<Store>> open_file_store(const std::string& folder, const std::string& job);

/// How ranks reach a store that one of them serves.
struct TcpStoreOptions {
  std::string endpoint = {};  ///< host:port of the rank that serves
  int rank = 0;
  bool serve = false;    ///< this rank does
  std::string job = {};  ///< ranks of another job are refused
  int64_t join_timeout_ms = 120'000;
};

/// The order in which ranks start is free: the others try again until the deadline.
/// Errors: kInvalidArgument for a bad endpoint; kResource where the port is in use; kDistributed
/// where nobody answers in time or another job does.
StatusOr<std::unique_ptr<Store>> open_tcp_store(const TcpStoreOptions& options);

}  // namespace millrace::executor
