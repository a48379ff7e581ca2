#include "tools/common/program_options.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Support/Regex.h>

#include "framework/base/errors.h"
#include "framework/read_program.h"

namespace millrace::tools {
namespace {

// `*` matches any run of characters, `?` one character. Only the last star is retried, so the time
// is at most the product of the lengths.
bool glob_matches(llvm::StringRef glob, llvm::StringRef name) {
  size_t g = 0;
  size_t n = 0;
  size_t star = llvm::StringRef::npos;
  size_t resume = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != llvm::StringRef::npos) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace

StatusOr<std::unique_ptr<Program>> read_program(const Tool& tool, const std::string& path) {
  return millrace::read_program(path, {.max_bytes = tool.common().max_model_bytes});
}

StatusOr<std::function<bool(llvm::StringRef)>> name_pattern(const std::string& pattern,
                                                            const std::string& flag) {
  std::function<bool(llvm::StringRef)> matches;
  if (pattern.empty()) return matches;
  const auto regex = std::make_shared<const llvm::Regex>(pattern);
  std::string error;
  if (!regex->isValid(error)) {
    return Status(StatusCode::kUsage, fmt::format("{}: '{}' is not a valid regular expression: {}",
                                                  flag, pattern, error));
  }
  matches = [regex](llvm::StringRef name) { return regex->match(name); };
  return matches;
}

std::function<bool(llvm::StringRef)> name_globs(const std::string& globs) {
  if (globs.empty()) return nullptr;
  return [globs](llvm::StringRef name) {
    llvm::SmallVector<llvm::StringRef, 8> parts;
    llvm::StringRef(globs).split(parts, ',');
    return llvm::any_of(parts, [&](llvm::StringRef glob) { return glob_matches(glob, name); });
  };
}

}  // namespace millrace::tools
