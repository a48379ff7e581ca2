#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Tells where the parts of a job are. An entry lives as long as whoever announced it: it goes with
/// the object, and some seconds after a process that was killed.
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

  /// Enters an address under a name, and keeps it there. Waits while somebody else has the name,
  /// who may be gone already, until the deadline.
  /// Errors: kDistributed if somebody keeps the name, with his address, or if the service cannot
  /// be reached.
  virtual Status announce(const std::string& name, const std::string& address,
                          Deadline deadline) = 0;
  /// The address under a name; none if nobody is there. Errors: kDistributed.
  virtual StatusOr<std::optional<std::string>> find(const std::string& name, Deadline deadline) = 0;
  /// All entries of the job, by name. Errors: kDistributed.
  virtual StatusOr<std::vector<Entry>> list(Deadline deadline) = 0;
};

}  // namespace millrace::ps
