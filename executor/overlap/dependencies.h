#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::executor {

/// A location that an op reads or writes: bytes of memory, or another range of numbers that
/// identifies something shared by ops.
struct Access {
  int64_t begin = 0;
  int64_t end = 0;  ///< one past the last; an empty range is no access
  bool writes = false;
};

/// For each op of a list, the earlier ops that it must wait for.
class Dependencies {
 public:
  Dependencies() = default;

  [[nodiscard]] size_t ops() const { return ends_.size(); }
  /// Ascending, without repeats.
  [[nodiscard]] llvm::ArrayRef<int32_t> before(size_t op) const {
    const auto begin = static_cast<size_t>(op == 0 ? 0 : ends_[op - 1]);
    return llvm::ArrayRef(before_).slice(begin, static_cast<size_t>(ends_[op]) - begin);
  }

  /// Appends the next op.
  void add(llvm::ArrayRef<int32_t> before);

 private:
  std::vector<int32_t> before_;
  std::vector<int32_t> ends_;
};

/// An op waits for the last earlier op that writes what it reads or writes, and for ops that
/// have since read what it writes. Any order that respects this gives every op the same inputs as
/// running the ops one after another. Cost: O(n log n) for n accesses, unless many ops read
/// parts of one location.
Dependencies find_dependencies(llvm::ArrayRef<std::vector<Access>> ops);

}  // namespace millrace::executor
