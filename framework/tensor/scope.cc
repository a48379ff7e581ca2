#include "framework/tensor/scope.h"

#include <algorithm>

namespace millrace {

Scope& Scope::root() {
  Scope* scope = this;
  while (scope->parent_ != nullptr) scope = scope->parent_;
  return *scope;
}

Value& Scope::local(llvm::StringRef name) {
  std::unique_ptr<Value>& value = values_[name];
  if (value == nullptr) value = std::make_unique<Value>();
  return *value;
}

Value* Scope::find(llvm::StringRef name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    if (Value* const value = scope->find_local(name)) return value;
    if (scope->beside_ == nullptr) continue;
    if (Value* const value = scope->beside_->find_local(name)) return value;
  }
  return nullptr;
}

Value* Scope::find_local(llvm::StringRef name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : found->second.get();
}

std::vector<std::string> Scope::names() const {
  std::vector<std::string> names;
  names.reserve(values_.size());
  for (const auto& entry : values_) names.push_back(entry.getKey().str());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace millrace
