#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/diff/normal_form.h"

namespace millrace::diff {

/// Hash that is the same on every machine and in every run. Not cryptographic.
class StableHash {
 public:
  /// Adds a text or a number; the order of the calls matters.
  StableHash& add(std::string_view text);
  StableHash& add(uint64_t number);
  [[nodiscard]] uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

/// One key per op: a hash of what it reads, computes and writes, including the history of every
/// value it reads. Apart from hash collisions, two blocks have the same keys (as multisets) if and
/// only if one is a permutation of the other in which no two accesses to one var swap.
///
/// \param by_name  names of written vars matter; else only names of persistable vars and of vars
///     that no earlier op of the block has written (feeds, parameters)
/// \returns for each block the key of each op, in op order
std::vector<std::vector<uint64_t>> history_keys(const NormalForm& program,
                                                const DiffOptions& options, bool by_name);

}  // namespace millrace::diff
