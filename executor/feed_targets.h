#pragma once

#include <map>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// Names that the ops "feed" set, or that the ops "fetch" read, in order of their attribute `col`.
std::vector<std::string> targets_of(const Program& program, llvm::StringRef type);

/// Names that a run of the program has to be fed: what its ops "feed" set; without such ops the
/// vars declared as data, or else those that are read before they are written and not persistable.
std::vector<std::string> feeds_of(const Program& program);

/// Errors: kInvalidArgument for a name that the program does not declare, with the feeds it has,
/// and for a parameter, which only updates and params files may change.
Status check_feed_name(const Program& program, llvm::StringRef name);

/// Names of the feeds of a run. One that the program does not declare is ignored where all feeds of
/// the program are given (a batch may have more than a pruned program reads), else it is taken for
/// a misspelt one. Errors: as check_feed_name().
Status check_feed_names(const Program& program, const std::map<std::string, Value>& feeds);

}  // namespace millrace::executor
