#pragma once

#include <functional>
#include <memory>
#include <string>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Reads a program file of either form (binary or text), of at most --max-model-bytes; "-" is
/// stdin.
StatusOr<std::unique_ptr<Program>> read_program(const Tool& tool, const std::string& path);

/// Predicate "the name matches the pattern": a POSIX extended regular expression, matched anywhere
/// in the name; null for an empty pattern. Errors: kUsage for an invalid pattern.
StatusOr<std::function<bool(llvm::StringRef)>> name_pattern(const std::string& pattern,
                                                            const std::string& flag);

/// Predicate "the name matches one of the globs" (`*` and `?`), comma-separated; null if empty.
std::function<bool(llvm::StringRef)> name_globs(const std::string& globs);

}  // namespace millrace::tools
