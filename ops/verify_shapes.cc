#include "framework/base/errors.h"
#include "ops/infer_shapes.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

// Turns what inference says into findings.
class ShapeFindings final : public ShapeObserver {
 public:
  explicit ShapeFindings(Context& context) : context_(context) {}

  bool wants(const Op& op) override { return context_.faulty.count(&op) == 0; }

  Status check(const InferContext& ctx) override {
    const DtypeRule* const rule = context_.type_of(ctx.op()).dtype_rule;
    return rule == nullptr ? Ok() : check_dtypes(*rule, ctx);
  }

  void failed(const Op& op, int64_t index, Status status) override {
    const OpView view{op, index, context_.type_of(op)};
    Location where = Context::place(view);
    const Location& found = status.location();
    where.slot = found.slot;
    where.slot_index = found.slot_index;
    where.attr = found.attr;
    where.var = found.var;
    context_.error(view, "shape", std::move(status), std::move(where));
  }

  void inferred(const Op& op, int64_t index, const Var& var, const VarMeta& meta) override {
    if (!meta.has_shape || meta.kind == VarKind::kSelectedRows) return;
    const std::optional<int64_t> bytes = tensor_bytes(meta.dtype, meta.dims);
    if (bytes && *bytes <= context_.options.limits.max_tensor_bytes) return;
    const OpView view{op, index, context_.type_of(op)};
    Location where = Context::place(view);
    where.var = var.name().str();
    context_.error(view, "inferred-bytes",
                   InvalidProgram("var '{}' would be {} of {}, above the limit of {} bytes for a "
                                  "tensor",
                                  where.var, dims_text(meta.dims), dtype_name(meta.dtype),
                                  context_.options.limits.max_tensor_bytes),
                   where);
  }

  void mismatch(const Op& op, int64_t index, const Var& var, const VarMeta& meta) override {
    if (!context_.options.lint) return;
    const OpView view{op, index, context_.type_of(op)};
    Location where = Context::place(view);
    where.var = var.name().str();
    context_.warning(view, "shape-declared",
                     InvalidProgram("var '{}' is declared {} but inference says {}", where.var,
                                    dims_text(var.dims()), dims_text(meta.dims)),
                     where);
  }

 private:
  Context& context_;
};

}  // namespace

void check_inference(Context& context) {
  ShapeFindings observer(context);
  observe_shapes(context.registry, context.program, observer);
}

}  // namespace millrace::ops::verify
