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

/// What a run of inference over a program tells its caller, op by op in block and op order.
class ShapeObserver {
 public:
  virtual ~ShapeObserver() = default;
  /// Says whether inference may look at the op; outputs of the others keep their declarations.
  virtual bool wants(const Op& /*op*/) { return true; }
  /// Further rules about the inputs of the op, checked before its inference; an error counts as a
  /// failed inference.
  virtual Status check(const InferContext& /*ctx*/) { return Ok(); }
  /// Inference of the op failed; the status has no place yet. Its outputs keep what was known.
  virtual void failed(const InferContext& ctx, int64_t index, Status status) = 0;
  /// The op sets a declared var. meta is what inference says, before declared dims fill its gaps.
  virtual void inferred(const Op& /*op*/, int64_t /*index*/, const Var& /*var*/,
                        const VarMeta& /*meta*/) {}
  /// The declared dims of the var disagree with the inferred ones.
  virtual void mismatch(const Op& op, int64_t index, const Var& var, const VarMeta& meta) = 0;
};

/// Runs inference over the whole program without changing it. Declared dims are trusted where
/// nothing is inferred; inferred dims flow on where they are more precise. Cost: linear in ops and
/// arguments.
void observe_shapes(const OpRegistry& registry, const Program& program, ShapeObserver& observer);

/// A declaration whose dims disagree with what inference says.
struct ShapeMismatch {
  Location place;
  Dims declared;
  Dims inferred;
};

/// observe_shapes() with the results in lists.
///
/// \returns mismatches between declarations and inference in block and op order (not errors: old
/// programs differ) Errors: every op whose inference fails is appended to errors, in order.
std::vector<ShapeMismatch> check_shapes(const OpRegistry& registry, const Program& program,
                                        std::vector<Status>& errors);

}  // namespace millrace::ops
