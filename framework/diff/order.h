#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/diff/normal_form.h"

namespace millrace::diff {

/// Hash that is the same on every machine and in every run; good for telling things apart.
class StableHash {
 public:
  StableHash& add(std::string_view text);
  StableHash& add(uint64_t number);
  [[nodiscard]] uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

/// What an op of a block reads, computes and writes, with the history of every value it reads: two
/// blocks have the same keys (as multisets) if and only if one is a permutation of the other in
/// which no two accesses of one var swap, apart from accidents of hashing.
///
/// \param by_name  names of written vars count; else only names of persistable vars and of vars
///                 that nobody in the block has written (feeds, parameters)
/// \returns for each block the key of each op in order
std::vector<std::vector<uint64_t>> history_keys(const NormalForm& program,
                                                const DiffOptions& options, bool by_name);

}  // namespace millrace::diff
