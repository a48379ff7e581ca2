#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/infer_context.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Meta of a declared var.
VarMeta meta_of(const VarSpec& spec);

/// Runs the inference function of one op on the declarations visible to it, and writes the result
/// (kind, dtype, dims, LoD level) to the declarations of its outputs. Ignores undeclared outputs.
/// Errors: kInvalidProgram with the op's location, for an unknown op type or a failed inference.
Status infer_op(const OpRegistry& registry, Op& op);

/// Callbacks of observe_shapes(), called op by op in block and op order.
class ShapeObserver {
 public:
  virtual ~ShapeObserver() = default;
  /// Returns whether to run inference on the op; otherwise its outputs keep their declarations.
  virtual bool wants(const Op& /*op*/) { return true; }
  /// Further rules about the inputs of the op, checked before its inference; an error counts as a
  /// failed inference.
  virtual Status check(const InferContext& /*ctx*/) { return Ok(); }
  /// Inference of the op failed. The status has no location yet. The metas of its outputs do not
  /// change.
  virtual void failed(const InferContext& ctx, int64_t index, Status status) = 0;
  /// The op sets a declared var. meta is the inferred one, before declared dims replace unknown
  /// ones.
  virtual void inferred(const Op& /*op*/, int64_t /*index*/, const Var& /*var*/,
                        const VarMeta& /*meta*/) {}
  /// The declared dims of the var disagree with the inferred ones.
  virtual void mismatch(const Op& op, int64_t index, const Var& var, const VarMeta& meta) = 0;
};

/// Runs inference over the whole program without changing it. Later ops see the inferred dims of a
/// var, and its declared dims where inference knows nothing. Cost: linear in ops and arguments.
void observe_shapes(const OpRegistry& registry, const Program& program, ShapeObserver& observer);

/// A declaration whose dims disagree with the inferred ones.
struct ShapeMismatch {
  Location place;
  Dims declared;
  Dims inferred;
};

/// Runs observe_shapes() and collects the results in lists.
///
/// \param errors  receives one status per op whose inference fails, in order
/// \returns mismatches between declarations and inference, in block and op order (not errors: old
/// programs have some)
std::vector<ShapeMismatch> check_shapes(const OpRegistry& registry, const Program& program,
                                        std::vector<Status>& errors);

}  // namespace millrace::ops
