#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// A directory of the addresses of a job's processes. An entry exists as long as the Directory
/// object of the process that announced it, and expires some seconds after that process was killed.
class Directory {
 public:
  struct Entry {
    std::string name;
    std::string address;
  };

  Directory() = default;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  virtual ~Directory() = default;

  /// Registers an address under a name, and keeps it registered. While another process has the
  /// name, waits until the deadline: that process may be dead already, and its entry will expire.
  /// \param least  the lowest term that the process may have
  /// \returns the term of this process (ps/transport/epoch.h): higher than that of every process
  ///     that had the name before
  /// Errors: kDistributed if another process keeps the name, with its address, if one finished its
  /// job (finish()) while this one waited, or if the service cannot be reached.
  virtual StatusOr<uint64_t> announce(const std::string& name, const std::string& address,
                                      uint64_t least, Deadline deadline) = 0;
  /// Whether a name that this process announced still belongs to it. As long as no other process
  /// can have it, the answer needs no call. Later, because this process was paused, its machine
  /// suspended, or the service out of reach, waits until the service has responded; an entry that
  /// has expired is registered again, unless another process has had the name since.
  /// Errors: kDistributed if the service has not responded by the deadline.
  virtual StatusOr<bool> still_has(const std::string& name, Deadline deadline) = 0;
  /// Sets what is called, once and from any thread, when this process has lost a name that it
  /// announced; at once if it has lost it already. Empty: nothing; no call is in progress then when
  /// this returns. The function must not call the directory.
  virtual void watch(const std::string& name, std::function<void()> lost) = 0;
  /// Records that the process with a name, which this process announced, has finished the job:
  /// those that wait for the name must not begin it again. A later announce() under the name begins
  /// another job. Best effort: waits a second at most, and writes failures to the log.
  virtual void finish(const std::string& name) = 0;
  /// The address under a name; none if the name is not registered. Errors: kDistributed.
  virtual StatusOr<std::optional<std::string>> find(const std::string& name, Deadline deadline) = 0;
  /// All entries of the job, ordered by name. Errors: kDistributed.
  virtual StatusOr<std::vector<Entry>> list(Deadline deadline) = 0;
};

}  // namespace millrace::ps
