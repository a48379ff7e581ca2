#include "ops/construct/unique_names.h"

#include <algorithm>

#include <fmt/format.h>

namespace millrace::ops {

std::string UniqueNames::next(llvm::StringRef key) {
  return fmt::format("{}_{}", key.str(), counters_[key]++);
}

void UniqueNames::continue_after(const Program& program) {
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) note(var.name());
  }
}

void UniqueNames::note(llvm::StringRef name) {
  for (size_t end = 0; end < name.size(); ++end) {
    end = std::min(name.find('.', end), name.size());
    const llvm::StringRef head = name.take_front(end);
    const size_t underscore = head.rfind('_');
    int64_t number = 0;
    if (underscore == llvm::StringRef::npos ||
        head.drop_front(underscore + 1).getAsInteger(10, number))
      continue;
    if (number < 0 || number >= INT32_MAX) continue;  // not a generated number
    int64_t& counter = counters_[head.take_front(underscore)];
    counter = std::max(counter, number + 1);
  }
}

}  // namespace millrace::ops
