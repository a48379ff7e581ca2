#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::executor {

/// A location that a step reads or writes: bytes of memory, or another range of numbers that
/// identifies something shared by steps.
struct Access {
  int64_t begin = 0;
  int64_t end = 0;  ///< one past the last; an empty range is no access
  bool writes = false;
};

/// For each step of a list, the earlier steps that it must wait for.
class Dependencies {
 public:
  Dependencies() = default;

  [[nodiscard]] size_t steps() const { return ends_.size(); }
  /// Ascending, without repeats.
  [[nodiscard]] llvm::ArrayRef<int32_t> before(size_t step) const {
    const auto begin = static_cast<size_t>(step == 0 ? 0 : ends_[step - 1]);
    return llvm::ArrayRef(before_).slice(begin, static_cast<size_t>(ends_[step]) - begin);
  }

  /// Appends the next step.
  void add(llvm::ArrayRef<int32_t> before);

 private:
  std::vector<int32_t> before_;
  std::vector<int32_t> ends_;
};

/// A step waits for the last earlier step that writes what it reads or writes, and for steps that
/// have since read what it writes. Any order that respects this gives every step the same inputs as
/// running the steps one after another. Cost: O(n log n) for n accesses, unless many steps read
/// parts of one location.
Dependencies find_dependencies(llvm::ArrayRef<std::vector<Access>> steps);

}  // namespace millrace::executor
