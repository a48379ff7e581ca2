#include "executor/var_locks.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace millrace::executor {
namespace var_locks {

struct Range {
  const std::byte* begin;
  const std::byte* end;
  const std::string* name;
};

void add_range(const Tensor& tensor, const std::string* name, std::vector<Range>& ranges) {
  if (tensor.initialized() && tensor.storage_bytes() > 0)
    ranges.push_back({tensor.raw(), tensor.raw() + tensor.storage_bytes(), name});
}

// The memory of a value. \param name  for messages, or null
void add_ranges(const Value& value, const std::string* name, std::vector<Range>& ranges) {
  if (const auto* const tensor = value.get_if<Tensor>()) add_range(*tensor, name, ranges);
  if (const auto* const rows = value.get_if<SelectedRows>()) add_range(rows->value, name, ranges);
  if (const auto* const array = value.get_if<TensorArray>()) {
    for (const Tensor& element : *array) add_range(element, name, ranges);
  }
}

// A value in another layout is converted by the op that reads it.
bool is_plain(const Value& value) {
  const auto* tensor = value.get_if<Tensor>();
  if (const auto* const rows = value.get_if<SelectedRows>()) tensor = &rows->value;
  return tensor == nullptr || tensor->layout() == nullptr;
}

}  // namespace var_locks

VarLocks::VarLocks(const Scope& scope) {
  for (const std::string& name : scope.names())
    locks_[scope.find_local(name)] = std::make_unique<std::shared_mutex>();
}

std::shared_mutex* VarLocks::find(const Value* value) const {
  const auto found = locks_.find(value);
  return found == locks_.end() ? nullptr : found->second.get();
}

llvm::SmallVector<VarUse, 1> VarLocks::read_of(const Value* value) const {
  std::shared_mutex* const lock = find(value);
  if (lock == nullptr) return {};
  return {VarUse{lock, value, false}};
}

std::vector<VarUse> VarLocks::all() const {
  std::vector<VarUse> uses;
  for (const auto& [value, lock] : locks_) uses.push_back({lock.get(), value, true});
  std::sort(uses.begin(), uses.end(),
            [](const VarUse& a, const VarUse& b) { return a.lock < b.lock; });
  return uses;
}

std::string VarLocks::overlap_in(const Scope& scope) {
  const std::vector<std::string> names = scope.names();
  std::vector<var_locks::Range> ranges;
  for (const std::string& name : names)
    var_locks::add_ranges(*scope.find_local(name), &name, ranges);
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    const bool apart = ranges[i].begin >= ranges[i - 1].end || ranges[i].name == ranges[i - 1].name;
    if (!apart) return fmt::format("'{}' and '{}'", *ranges[i - 1].name, *ranges[i].name);
  }
  return {};
}

HeldVars::HeldVars(llvm::ArrayRef<VarUse> uses) : uses_(uses) {
  for (const VarUse& use : uses) {
    bool exclusive = use.changes;
    if (!exclusive) {
      use.lock->lock_shared();
      exclusive = !var_locks::is_plain(*use.value);
      if (exclusive) use.lock->unlock_shared();
    }
    if (exclusive) use.lock->lock();
    exclusive_.push_back(exclusive);
  }
}

HeldVars::~HeldVars() {
  for (size_t i = uses_.size(); i > 0; --i) {
    if (exclusive_[i - 1]) uses_[i - 1].lock->unlock();
    if (!exclusive_[i - 1]) uses_[i - 1].lock->unlock_shared();
  }
}

bool have_common_memory(const Value& one, const Value& other) {
  std::vector<var_locks::Range> of_one;
  std::vector<var_locks::Range> of_other;
  var_locks::add_ranges(one, nullptr, of_one);
  var_locks::add_ranges(other, nullptr, of_other);
  return std::any_of(of_one.begin(), of_one.end(), [&](const var_locks::Range& a) {
    return std::any_of(of_other.begin(), of_other.end(), [&](const var_locks::Range& b) {
      return a.begin < b.end && b.begin < a.end;
    });
  });
}

}  // namespace millrace::executor
