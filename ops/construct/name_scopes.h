#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace millrace::ops {

/// The name scopes that the front end opens around groups of ops (attribute op_namescope). Each
/// opening gives a new scope: "optimizer" is "/optimizer/" the first time, then "/optimizer_1/",
/// and so on. Scopes nest.
///
/// The original counts openings over all programs of a process. Here each object counts separately,
/// from 0 or from where continue_after() sets it. Thread-safety: none.
class NameScopes {
 public:
  /// Opens a scope inside the path ("/" is the outermost) and returns its path, which ends in "/".
  std::string open(const std::string& path, const std::string& prefix);
  /// Counts the prefix as opened `openings` times already in the outermost scope.
  void continue_after(const std::string& prefix, int64_t openings);

 private:
  std::map<std::string, int64_t> openings_;  ///< by path and prefix
};

}  // namespace millrace::ops
