#include "framework/name_table.h"

namespace millrace {

NameId NameTable::intern(llvm::StringRef name) {
  const auto [it, added] = ids_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (added) names_.push_back(it->getKey());
  return static_cast<NameId>(it->getValue());
}

std::optional<NameId> NameTable::find(llvm::StringRef name) const {
  const auto it = ids_.find(name);
  if (it == ids_.end()) return std::nullopt;
  return static_cast<NameId>(it->getValue());
}

}  // namespace millrace
