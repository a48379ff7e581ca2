#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::executor {

/// A place that a step looks at or changes: bytes of memory, or any other range of numbers that
/// stands for something which steps share.
struct Access {
  int64_t begin = 0;
  int64_t end = 0;  ///< behind the last one; an empty range is no access
  bool writes = false;
};

/// For each of a list of steps, those earlier ones that it must wait for.
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

/// A step waits for the last step before it that writes what it reads or writes, and for those that
/// have read since what it writes. Any order of running that respects this gives every step what it
/// sees when the steps run one after another. Cost: O(n log n) for n accesses, unless many steps
/// read parts of one place.
Dependencies find_dependencies(llvm::ArrayRef<std::vector<Access>> steps);

}  // namespace millrace::executor
