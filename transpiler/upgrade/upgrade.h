#pragma once

#include <vector>

#include <llvm/ADT/StringRef.h>

#include "transpiler/pass_registry.h"

/// Passes that rewrite programs of older releases (0.14 to 2.5) into the form of release 2.6. Each
/// leaves programs of that release alone, and a second run changes nothing. What a program computes
/// stays the same. Source: the version registry of release 2.6.2 and docs/passes.md.
namespace millrace::transpiler {

/// The release that upgraded programs are written for, in the form of the version message:
/// major * 1000000 + minor * 1000 + patch.
inline constexpr int64_t kUpgradeRelease = 2006002;

/// One step of `upgrade-program`.
using UpgradeFn = StatusOr<bool> (*)(Program& program, PassContext& context);

/// Gives each attribute the kind that the op's schema names (is_test as INT, shape as INTS, dim as
/// one INT).
StatusOr<bool> upgrade_attr_kinds(Program& program, PassContext& context);
/// Renames attributes and slots that got another name, and drops slots that were withdrawn.
/// Errors: kUnimplemented, naming the op, if a withdrawn slot is in use.
StatusOr<bool> upgrade_attr_names(Program& program, PassContext& context);
/// Replaces ops whose formula was changed by the older formula where the difference matters.
/// Errors: kUnimplemented, naming the op, where that formula has no ops or the op has a gradient.
StatusOr<bool> upgrade_formulas(Program& program, PassContext& context);
/// Replaces op types that are gone by their successors, gradients included.
StatusOr<bool> upgrade_op_types(Program& program, PassContext& context);
/// Gives gradient ops, and forward ops that have one, the inputs, outputs and attributes that later
/// releases insist on.
StatusOr<bool> upgrade_gradients(Program& program, PassContext& context);
/// Stamps release and op versions.
StatusOr<bool> stamp_versions(Program& program, PassContext& context);

/// Version of the op that wrote the program: the entry of its version map; 0 without one.
int32_t written_version(const Program& program, llvm::StringRef op);

/// Version of every op of release 2.6.2 that was ever changed, by name.
std::vector<OpVersion> current_op_versions();

/// Adds the passes above by name (upgrade-attr-kinds, ...) and all of them as upgrade-program.
void register_upgrades(PassRegistry& passes);

}  // namespace millrace::transpiler
