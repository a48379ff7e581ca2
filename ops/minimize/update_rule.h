#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// One var of optimizer state for a parameter.
struct Accumulator {
  llvm::StringLiteral name;     ///< "<param>_<name>_<n>"
  llvm::StringLiteral input;    ///< input slot of the update op
  llvm::StringLiteral output;   ///< output slot; empty: the op does not write the var
  double value = 0;             ///< initial value
  bool is_power = false;        ///< one element instead of the parameter's shape
  bool in_host_memory = false;  ///< op_device of its start value is "cpu"
};

/// A power that a separate op multiplies by a factor in every step, after all updates.
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
  /// True if the accumulators of a half-precision parameter are in single precision.
  bool single_precision_state = false;
};

/// The rule of a method for one parameter.
/// \param decay  L2 decay of the parameter that the update op applies; nullopt: none
UpdateRule update_rule(const UpdateMethod& method, const std::string& param,
                       const std::optional<L2Decay>& decay);

/// True if the update op of the method applies L2 decay itself.
bool fuses_l2(const UpdateMethod& method);
/// True if the optimizer keeps a copy of half-precision parameters in single precision.
bool is_multi_precision(const UpdateMethod& method);

}  // namespace millrace::ops
