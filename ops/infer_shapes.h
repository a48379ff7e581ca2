#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/infer_context.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Meta of a declared var.
VarMeta meta_of(const VarSpec& spec);

/// Runs the inference function of one op against the declarations it sees and writes the result
/// into the declarations of its outputs (kind, dtype, dims, LoD level); undeclared outputs are left
/// alone. Errors: kInvalidProgram with the op's place, what was expected and what was found.
Status infer_op(const OpRegistry& registry, Op& op);

/// A declaration whose dims disagree with what inference says.
struct ShapeMismatch {
  Location place;
  Dims declared;
  Dims inferred;
};

/// Runs inference over the whole program without changing it. Declared dims are trusted where
/// nothing is inferred; inferred dims flow on where they are more precise.
///
/// \returns mismatches between declarations and inference in block and op order (not errors: old
/// programs differ) Errors: every op whose inference fails is appended to errors, in order.
std::vector<ShapeMismatch> check_shapes(const OpRegistry& registry, const Program& program,
                                        std::vector<Status>& errors);

}  // namespace millrace::ops
