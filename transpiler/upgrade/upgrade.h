#pragma once

#include <vector>

#include <llvm/ADT/StringRef.h>

#include "transpiler/pass.h"

/// Passes that rewrite programs of older releases (0.14 to 2.5) into the form of release 2.6. None
/// changes a program of release 2.6, and a second run changes nothing. The results that a program
/// computes stay the same. Source: the version registry of release 2.6.2 and docs/passes.md.
namespace millrace::transpiler {

/// The release that upgraded programs are written for, in the form of the version message:
/// major * 1000000 + minor * 1000 + patch.
inline constexpr int64_t kUpgradeRelease = 2006002;

/// One pass of `upgrade-program`.
using UpgradeFn = StatusOr<bool> (*)(Program& program, PassContext& context);

/// Converts each attribute to the kind that the op's schema declares (is_test as INT, shape as
/// INTS, dim as one INT).
StatusOr<bool> upgrade_attr_kinds(Program& program, PassContext& context);
/// Renames attributes and slots that were renamed, and drops slots that no longer exist.
/// Errors: kUnimplemented, naming the op, if such a slot is in use.
StatusOr<bool> upgrade_attr_names(Program& program, PassContext& context);
/// Replaces an op whose formula changed by ops that compute the older formula, if the difference
/// matters. Errors: kUnimplemented, naming the op, if no ops compute that formula or the op has a
/// gradient.
StatusOr<bool> upgrade_formulas(Program& program, PassContext& context);
/// Replaces op types that no longer exist by their successors, including gradients.
StatusOr<bool> upgrade_op_types(Program& program, PassContext& context);
/// Adds to gradient ops, and to forward ops that have one, the inputs, outputs and attributes that
/// later releases require.
StatusOr<bool> upgrade_gradients(Program& program, PassContext& context);
/// Sets release and op versions.
StatusOr<bool> stamp_versions(Program& program, PassContext& context);

/// Version of the op in the release that wrote the program: the entry in its version map; 0 without
/// one.
int32_t written_version(const Program& program, llvm::StringRef op);

/// Version of every op of release 2.6.2 that ever changed, by name.
std::vector<OpVersion> current_op_versions();

}  // namespace millrace::transpiler
