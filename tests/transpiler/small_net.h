#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/program.h"

/// Small training programs built through the IR, and a one-line form of ops for comparisons.
namespace millrace::transpiler {

/// Variants of small_net(): y = x * w + b, its loss and gradients, and one sgd per parameter.
struct SmallNetOptions {
  int64_t rows = 4;
  int64_t columns = 2;
  bool is_distributed = false;  ///< w is the table of a distributed lookup, x has its ids
  bool is_sparse = false;       ///< w is looked up, its gradient is SELECTED_ROWS
  bool two_pairs = false;       ///< one backward op writes both gradients
};

struct SmallNet {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
};

SmallNet small_net(const SmallNetOptions& options = {});

/// "type(X=a,b) -> Out=c", followed by "#role" and, for the named attributes, "attr=value".
std::string op_line(const Op& op, const std::vector<std::string>& attrs = {});
/// The lines of all ops of a block.
std::vector<std::string> op_lines(const Block& block, const std::vector<std::string>& attrs = {});

}  // namespace millrace::transpiler
