#pragma once

#include <cstdint>
#include <string>

#include "framework/base/status.h"

namespace millrace::ps {

/// The term of a server (ps/transport/epoch.h), kept beside its snapshots in the file
/// `<snapshot folder>/server-<n>.term`. A server writes its term there before it serves, so the
/// next one that loads the snapshots takes a higher one, and this one can find out that there is a
/// next one. Not thread-safe.
class ServerTerm {
 public:
  /// \param root  the folder of the snapshots of all servers
  ServerTerm(const std::string& root, int64_t server);

  /// The term in the file; 0 if there is none. Errors: kInvalidData for a malformed file; kIo.
  [[nodiscard]] StatusOr<uint64_t> read() const;
  /// Writes the term, and returns when it is on the disk. Creates the folder. Errors: kIo.
  [[nodiscard]] Status write(uint64_t term) const;

 private:
  std::string path_;
};

}  // namespace millrace::ps
