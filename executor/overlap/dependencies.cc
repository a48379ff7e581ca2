#include "executor/overlap/dependencies.h"

#include <algorithm>
#include <map>

#include <llvm/ADT/SmallVector.h>

namespace millrace::executor {
namespace {

// The ops that last used each location. Locations that were not used are absent.
class LastUses {
 public:
  void visit(int32_t op, const Access& access, llvm::SmallVectorImpl<int32_t>& before) {
    if (access.begin >= access.end) return;
    split(access.begin);
    split(access.end);
    fill_gaps(access.begin, access.end);
    const auto first = uses_.find(access.begin);
    auto it = first;
    for (; it != uses_.end() && it->first < access.end; ++it) {
      Use& use = it->second;
      if (use.writer >= 0 && use.writer != op) before.push_back(use.writer);
      if (!access.writes) {
        if (use.readers.empty() || use.readers.back() != op) use.readers.push_back(op);
        continue;
      }
      for (const int32_t reader : use.readers) {
        if (reader != op) before.push_back(reader);
      }
    }
    if (!access.writes) return;
    uses_.erase(std::next(first), it);
    first->second = {access.end, op, {}};
  }

 private:
  struct Use {
    int64_t end = 0;
    int32_t writer = -1;
    llvm::SmallVector<int32_t, 2> readers;  // since then
  };

  // Splits the use that contains a location.
  void split(int64_t at) {
    auto it = uses_.lower_bound(at);
    if (it == uses_.begin()) return;
    it = std::prev(it);
    if (it->first >= at || it->second.end <= at) return;
    Use rest = it->second;
    it->second.end = at;
    uses_.emplace(at, std::move(rest));
  }
  void fill_gaps(int64_t begin, int64_t end) {
    auto it = uses_.lower_bound(begin);
    while (begin < end) {
      const int64_t next = it == uses_.end() ? end : std::min(it->first, end);
      if (begin < next) uses_.emplace_hint(it, begin, Use{next, -1, {}});
      if (it == uses_.end() || it->first >= end) return;
      begin = it->second.end;
      ++it;
    }
  }

  std::map<int64_t, Use> uses_;
};

}  // namespace

void Dependencies::add(llvm::ArrayRef<int32_t> before) {
  before_.insert(before_.end(), before.begin(), before.end());
  ends_.push_back(static_cast<int32_t>(before_.size()));
}

Dependencies find_dependencies(llvm::ArrayRef<std::vector<Access>> ops) {
  Dependencies result;
  LastUses uses;
  llvm::SmallVector<int32_t, 8> before;
  for (size_t s = 0; s < ops.size(); ++s) {
    before.clear();
    // reads first, so that an op does not wait for its own read of what it also writes
    for (const bool writes : {false, true}) {
      for (const Access& access : ops[s]) {
        if (access.writes == writes) uses.visit(static_cast<int32_t>(s), access, before);
      }
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    result.add(before);
  }
  return result;
}

}  // namespace millrace::executor
