#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace millrace::ops {

/// The name scopes that the front end opens around groups of ops (attribute op_namescope). Every
/// opening is a scope of its own: "optimizer" is "/optimizer/" the first time, then
/// "/optimizer_1/", and so on; scopes nest.
///
/// The original counts openings over all programs of a process; here an object counts from where
/// it is told. Thread-safety: none.
class NameScopes {
 public:
  /// Opens a scope inside the path ("/" is the outermost) and returns its path, which ends in "/".
  std::string open(const std::string& path, const std::string& prefix);
  /// Counts so many openings of a prefix in the outermost scope as done already.
  void continue_after(const std::string& prefix, int64_t openings);

 private:
  std::map<std::string, int64_t> openings_;  ///< by path and prefix
};

}  // namespace millrace::ops
