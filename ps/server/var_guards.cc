#include "ps/server/var_guards.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "framework/names.h"

namespace millrace::ps {
namespace {

struct Uses {
  std::set<std::string> reads;
  std::set<std::string> writes;
};

// Collects the outer vars that a block and the sub-blocks of its ops use.
void collect(const Program& program, int32_t index, Uses& uses, std::set<int32_t>& seen) {
  if (index <= 0 || static_cast<size_t>(index) >= program.block_count() ||
      !seen.insert(index).second)
    return;
  const Block& block = program.block(static_cast<size_t>(index));
  const auto is_own = [&](llvm::StringRef name) {
    const Var* const var = block.find_var(name);
    return name == names::kEmpty || (var != nullptr && !var->persistable());
  };
  for (const Op& op : block.ops()) {
    for (const llvm::StringRef name : op.input_names()) {
      if (!is_own(name)) uses.reads.insert(name.str());
    }
    for (const llvm::StringRef name : op.output_names()) {
      if (!is_own(name)) uses.writes.insert(name.str());
    }
    for (const Attr& attr : op.attrs()) {
      if (attr.value.kind() == AttrKind::kBlock)
        collect(program, static_cast<int32_t>(attr.value.integer()), uses, seen);
    }
  }
}

}  // namespace

VarGuards::VarGuards(const Program& program, llvm::ArrayRef<int32_t> blocks)
    : blocks_(blocks.begin(), blocks.end()) {
  std::vector<Uses> uses(blocks_.size());
  std::map<std::string, std::set<size_t>> readers;
  std::map<std::string, std::set<size_t>> writers;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    std::set<int32_t> seen;
    collect(program, blocks_[i], uses[i], seen);
    for (const std::string& name : uses[i].reads) readers[name].insert(i);
    for (const std::string& name : uses[i].writes) writers[name].insert(i);
  }
  for (size_t i = 0; i <= blocks_.size(); ++i)
    mutexes_.push_back(std::make_unique<std::shared_mutex>());
  const auto place = [&](const std::string& name) {
    const auto written = writers.find(name);
    const std::set<size_t>& owners = written != writers.end() ? written->second : readers[name];
    return owners.size() == 1 ? *owners.begin() + 1 : 0;
  };
  for (size_t i = 0; i < blocks_.size(); ++i) {
    std::map<size_t, bool> needed{{i + 1, true}};
    for (const std::string& name : uses[i].reads)
      needed.try_emplace(guard_of_[name] = place(name), false);
    for (const std::string& name : uses[i].writes) needed[guard_of_[name] = place(name)] = true;
    std::vector<Need>& needs = needs_.emplace_back();
    for (const auto& [guard, exclusive] : needed)
      needs.push_back({mutexes_[guard].get(), exclusive});
  }
}

std::shared_mutex& VarGuards::of(llvm::StringRef var) const {
  return *mutexes_[guard_of_.lookup(var)];
}

std::vector<std::unique_lock<std::shared_mutex>> VarGuards::lock_all() const {
  std::vector<std::unique_lock<std::shared_mutex>> locks;
  for (const auto& mutex : mutexes_) locks.emplace_back(*mutex);
  return locks;
}

llvm::ArrayRef<VarGuards::Need> VarGuards::needs(int32_t block) const {
  const auto found = std::find(blocks_.begin(), blocks_.end(), block);
  return needs_[static_cast<size_t>(found - blocks_.begin())];
}

BlockLock::BlockLock(llvm::ArrayRef<VarGuards::Need> needs) : needs_(needs) {
  for (const VarGuards::Need& need : needs_) {
    if (need.exclusive) {
      need.mutex->lock();
    } else {
      need.mutex->lock_shared();
    }
  }
}

BlockLock::~BlockLock() {
  for (size_t i = needs_.size(); i > 0; --i) {
    const VarGuards::Need& need = needs_[i - 1];
    if (need.exclusive) {
      need.mutex->unlock();
    } else {
      need.mutex->unlock_shared();
    }
  }
}

}  // namespace millrace::ps
