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

/// What counts as a difference between two programs. With the defaults, these are equal: vars in
/// any order; attributes and slots of an op in any order; a missing slot and an empty one; an
/// absent attribute and the default of the op or the zero of its kind; int and long, ints and longs
/// with the same numbers; empty lists of any kind; generated names of control vars (they are
/// renamed after the op that writes them); any order of entries in grad_to_block_id and
/// sparse_grad_to_param of listen_and_serv. Ignored: op_callstack, with_quant_attr, stop_gradient,
/// the version fields, and redundant facts in a file (false flags, LoD level 0).
struct DiffOptions {
  bool any_order = false;     ///< ops may be permuted unless accesses to one var swap
  bool semantic = false;      ///< any_order, and names of vars that ops create are ignored
  bool strict_attrs = false;  ///< an absent attribute differs from a default
  bool strict_types = false;  ///< int differs from long, ints from longs
  bool strict_vars = false;   ///< stop_gradient is compared
  std::set<std::string> ignore_attrs = {};                 ///< further attributes to ignore
  std::function<bool(llvm::StringRef)> ignore_var = {};    ///< var declarations to ignore
  std::function<bool(llvm::StringRef)> ignore_shape = {};  ///< vars whose declared dims to ignore
  std::map<std::string, std::string> rename = {};          ///< renames of the first program's vars
};

/// One difference. a and b are the values in the two programs; empty if missing in that program.
struct Difference {
  int block = -1;
  int64_t op_a = -1;  ///< index in its block; -1 if missing or not about an op
  int64_t op_b = -1;
  std::string op_type;
  std::string what;  ///< "input X", "attr axis", "var w", "op", "parent", ...
  std::string a;
  std::string b;

  /// "block 0 op 3 (mul): attr axis: 1 -> 2". Escaped for terminals.
  [[nodiscard]] std::string to_string() const;
};

/// All differences, ordered by block, vars by name, ops by index; empty if the programs are equal.
/// Op lists are aligned by their longest common subsequence, so one additional op is one
/// difference.
/// Thread-safety: pure. Cost: about linear in both programs; quadratic in the length of the regions
/// that differ, up to a bound above which the alignment is coarser.
std::vector<Difference> diff_programs(const Program& a, const Program& b,
                                      const DiffOptions& options = {});

}  // namespace millrace
