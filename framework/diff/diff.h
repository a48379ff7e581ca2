#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace {

/// What counts as a difference of two programs. With the defaults the following is equal:
/// vars in any order; attributes and slots of an op in any order; a missing slot and an empty one;
/// an absent attribute and the default of the op or the zero of its kind; int and long, ints and
/// longs with the same numbers, empty lists of any kind; generated names of control vars (they are
/// named after the op that writes them); the order inside grad_to_block_id and sparse_grad_to_param
/// of listen_and_serv. Not looked at: op_callstack, with_quant_attr, stop_gradient, the version
/// fields, and facts that a file states without need (false flags, LoD level 0).
struct DiffOptions {
  bool any_order = false;     ///< ops may be permuted unless two accesses of one var swap
  bool semantic = false;      ///< any_order, and names of vars that ops make do not matter
  bool strict_attrs = false;  ///< an absent attribute differs from a default
  bool strict_types = false;  ///< int differs from long, ints from longs
  bool strict_vars = false;   ///< stop_gradient counts
  std::set<std::string> ignore_attrs = {};                 ///< more attributes to leave out
  std::function<bool(llvm::StringRef)> ignore_var = {};    ///< declarations to leave out
  std::function<bool(llvm::StringRef)> ignore_shape = {};  ///< declarations whose dims do not count
  std::map<std::string, std::string> rename = {};          ///< var names of the first program
};

/// One difference; a and b are what the two programs say, empty where one has nothing.
struct Difference {
  int block = -1;
  int64_t op_a = -1;  ///< index in its block; -1 where the op is missing or no op is meant
  int64_t op_b = -1;
  std::string op_type;
  std::string what;  ///< "input X", "attr axis", "var w", "op", "parent", ...
  std::string a;
  std::string b;

  /// "block 0 op 3 (mul): attr axis: 1 -> 2". Escaped for terminals.
  [[nodiscard]] std::string to_string() const;
};

/// All differences in order of blocks, vars by name, ops by place; empty if the programs are equal.
/// Op lists are aligned by their longest common subsequence, so one more op is one difference.
/// Thread-safety: pure. Cost: about linear in both programs; quadratic in the length of parts that
/// differ, up to a bound above which the alignment is coarser.
std::vector<Difference> diff_programs(const Program& a, const Program& b,
                                      const DiffOptions& options = {});

}  // namespace millrace
