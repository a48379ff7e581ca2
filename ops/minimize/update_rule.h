#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// One var that an optimizer keeps for a parameter.
struct Accumulator {
  llvm::StringLiteral name;     ///< "<param>_<name>_<n>"
  llvm::StringLiteral input;    ///< slot of the update op
  llvm::StringLiteral output;   ///< empty: the op does not write it
  double value = 0;             ///< at the beginning
  bool is_power = false;        ///< one element instead of the parameter's shape
  bool in_host_memory = false;  ///< op_device of its start value is "cpu"
};

/// A power that an op of its own brings forward once a step, behind all updates.
struct PowerUpdate {
  llvm::StringLiteral accumulator;
  double factor = 1;
  llvm::StringLiteral scope;  ///< name scope of the op
};

/// The update op of one parameter: what minimize() appends.
struct UpdateRule {
  llvm::StringLiteral type;
  std::vector<Accumulator> accumulators = {};
  std::vector<std::pair<llvm::StringLiteral, AttrValue>> attrs = {};
  std::optional<PowerUpdate> power_update = {};
  /// The accumulators of a parameter in half precision are in single precision.
  bool single_precision_state = false;
};

/// The rule of a method for one parameter.
/// \param decay  regularisation that holds for the parameter and is left to the update op
UpdateRule update_rule(const UpdateMethod& method, const std::string& param,
                       const std::optional<L2Decay>& decay);

/// True if the method takes L2 decay into its update op.
bool fuses_l2(const UpdateMethod& method);
/// True if half-precision parameters keep a copy in single precision.
bool is_multi_precision(const UpdateMethod& method);

}  // namespace millrace::ops
