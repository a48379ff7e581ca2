#include "executor/feed_targets.h"

#include <algorithm>
#include <utility>

#include "framework/op_attrs.h"

namespace millrace::executor {

std::vector<std::string> targets_of(const Program& program, llvm::StringRef type) {
  std::vector<std::pair<int32_t, std::string>> found;
  for (const Op& op : program.root().ops()) {
    if (op.type() != type && op.type() != type.str() + "_v2") continue;
    const llvm::StringRef name = type == "feed" ? op.first_output("Out") : op.first_input("X");
    found.emplace_back(get_attr_or<int32_t>(op, "col", 0), name.str());
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto& [col, name] : found) names.push_back(std::move(name));
  return names;
}

}  // namespace millrace::executor
