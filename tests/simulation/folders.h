#pragma once

#include <string>

#include "tests/simulation/scheduler.h"

namespace millrace::simulation {

/// Snapshots of one server and its term, as they are below a folder of snapshots.
struct ServerFolder {
  std::string root;  ///< of the snapshots of all servers
  int server = 0;

  [[nodiscard]] std::string snapshots() const;
  [[nodiscard]] std::string term() const;
  [[nodiscard]] bool exists() const;
  /// Replaces the snapshots by copies of others, and the term if `with_term`; without the lock.
  void copy_from(const ServerFolder& other, bool with_term) const;
  /// Damages what the server wrote last, as a disk does that says too early that it has written:
  /// files of the last snapshot are cut, empty or gone, and the last term may be.
  void tear(Random& random) const;
};

}  // namespace millrace::simulation
