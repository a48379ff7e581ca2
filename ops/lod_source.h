#pragma once

#include <optional>

#include <llvm/ADT/StringRef.h>

#include "ops/registry.h"

namespace millrace::ops {

/// The input var whose LoD offsets a result of an op has when the op runs.
///
/// Rewrites need it: the op that takes the place of others must give its result the same LoD, since
/// a sequence op that reads the result would else work on other sequences.
///
/// Runs the op's shape inference with the declared shapes, each input marked by offsets of its own.
/// \param op   an op of the registry, in a block that declares its vars
/// \param out  name of a var that the op writes
/// \return the name of the input; empty if the result has no offsets; nullopt if that is not known
///         before the op runs: the op is not in the registry, its inference fails, or it makes
///         offsets of its own
std::optional<llvm::StringRef> lod_source(const OpRegistry& registry, const Op& op,
                                          llvm::StringRef out);

}  // namespace millrace::ops
