#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"

namespace millrace {

/// Offsets of one LoD level: starts with 0, never decreases. Entry i is [at[i], at[i + 1]).
using LodLevel = std::vector<int64_t>;

/// Level of detail of a tensor: how its rows are grouped into sequences, level by level, outermost
/// first, as offsets. The last offset of a level is the number of entries of the next level; that
/// of the innermost level is the number of rows.
///
/// A value type. Copies share the immutable offsets, so a copy costs a reference-count update.
/// Source: spec/executor.md section 6. Thread-safety: as a value.
class Lod {
 public:
  Lod() = default;
  explicit Lod(std::vector<LodLevel> levels);

  /// True if the tensor has no LoD at all.
  [[nodiscard]] bool empty() const { return levels_ == nullptr; }
  [[nodiscard]] size_t size() const { return levels_ == nullptr ? 0 : levels_->size(); }
  /// Offsets of a level; level < size().
  [[nodiscard]] llvm::ArrayRef<int64_t> level(size_t index) const { return (*levels_)[index]; }
  /// Offsets of the innermost level. The LoD must not be empty.
  [[nodiscard]] llvm::ArrayRef<int64_t> last() const { return levels_->back(); }
  /// Number of sequences of a level; level < size().
  [[nodiscard]] int64_t sequences(size_t index) const {
    return static_cast<int64_t>((*levels_)[index].size()) - 1;
  }
  [[nodiscard]] const std::vector<LodLevel>& levels() const;

  /// Checks the rules above for a tensor with `rows` rows. Errors: kInvalidData with level,
  /// expected and found.
  [[nodiscard]] Status check(int64_t rows) const;
  /// "[[0, 2, 5]]", truncated after a few offsets; for messages.
  [[nodiscard]] std::string to_string() const;

  bool operator==(const Lod& other) const;

 private:
  std::shared_ptr<const std::vector<LodLevel>> levels_;
};

}  // namespace millrace
