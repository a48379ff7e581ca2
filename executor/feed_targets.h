#pragma once

#include <map>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// Names that feed ops set or fetch ops read, in order of their attribute `col`.
/// \param type  "feed" or "fetch"
std::vector<std::string> targets_of(const Program& program, llvm::StringRef type);

/// Names that must be fed for a run of the program: the names that feed ops set. Without feed ops:
/// the vars declared as data; without those: the vars that are read before they are written and not
/// persistable.
std::vector<std::string> feeds_of(const Program& program);

/// Errors: kInvalidArgument for a name that the program does not declare (the message lists the
/// feeds it has), and for a parameter, which only updates and params files may change.
Status check_feed_name(const Program& program, llvm::StringRef name);

/// check_feed_name() of each key of a map of feeds: for those that a caller has chosen by name.
template <typename Feeds>
Status check_each_feed(const Program& program, const Feeds& feeds) {
  for (const auto& [name, value] : feeds) MILLRACE_RETURN_IF_ERROR(check_feed_name(program, name));
  return Ok();
}

/// Checks the names of the feeds of a run. A name that the program does not declare is ignored if
/// all feeds of the program are present (a batch may have more than a pruned program reads); else
/// it is reported as a misspelt one. Errors: those of check_feed_name().
Status check_feed_names(const Program& program, const std::map<std::string, Value>& feeds);

}  // namespace millrace::executor
