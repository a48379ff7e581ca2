#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "ops/infer_shapes.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

// Name, type and dims of the first inputs, because messages of inference name only slots. For
// example "X 'x' f32 [-1, 3], Y 'w' f32 [4, 2]".
std::string inputs_text(const InferContext& ctx) {
  constexpr size_t kMost = 8;
  std::string out;
  size_t listed = 0;
  for (const Slot& slot : ctx.op().inputs()) {
    const llvm::StringRef name = ctx.op().name_of(slot.name);
    for (size_t i = 0; i < slot.args.size(); ++i) {
      if (listed++ == kMost) return out + ", ...";
      const VarMeta& meta = ctx.input(name, i);
      out += fmt::format("{}{} '{}'", out.empty() ? "" : ", ", text(name),
                         text(ctx.op().name_of(slot.args[i].name)));
      if (meta.has_shape)
        out += fmt::format(" {} {}", dtype_name(meta.dtype), dims_text(meta.dims));
    }
  }
  return out;
}

// Turns the results of inference into findings.
class ShapeFindings final : public ShapeObserver {
 public:
  explicit ShapeFindings(Context& context) : context_(context) {}

  bool wants(const Op& op) override { return context_.faulty.count(&op) == 0; }

  Status check(const InferContext& ctx) override {
    const DtypeRule* const rule = context_.type_of(ctx.op()).dtype_rule;
    return rule == nullptr ? Ok() : check_dtypes(*rule, ctx);
  }

  void failed(const InferContext& ctx, int64_t index, Status status) override {
    const OpView view{ctx.op(), index, context_.type_of(ctx.op())};
    if (context_.counted(view)) return;
    Location where = Context::place(view);
    const Location& found = status.location();
    where.slot = found.slot;
    where.slot_index = found.slot_index;
    where.attr = found.attr;
    where.var = found.var;
    const std::string inputs = inputs_text(ctx);
    if (!inputs.empty()) status = std::move(status).with_note("inputs are " + inputs);
    context_.error(view, "shape", std::move(status), std::move(where));
  }

  void inferred(const Op& op, int64_t index, const Var& var, const VarMeta& meta) override {
    if (!meta.has_shape) return;
    check_negative_dims(op, index, var, meta);
    if (meta.kind == VarKind::kSelectedRows) return;
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

  // Reports vars with a dim below -1 that no inferred op writes.
  void finish() {
    for (const Block& block : context_.program.blocks()) {
      for (const Var& var : block.vars()) {
        const std::optional<size_t> at = negative_dim(var);
        if (!at || var.persistable() || products_.contains(&var) ||
            block.writers_of(var.name()).empty())
          continue;
        Location where;
        where.block = block.index();
        where.var = var.name().str();
        context_.findings.error(
            "var-dims", InvalidProgram("var '{}' has dim {} at position {} (expected -1 or more)",
                                       where.var, var.dims()[*at], *at)
                            .at(where));
      }
    }
  }

 private:
  static std::optional<size_t> negative_dim(const Var& var) {
    if (!var.spec().has_tensor()) return std::nullopt;
    const llvm::ArrayRef<int64_t> dims = var.dims();
    const auto* const found = llvm::find_if(dims, [](int64_t dim) { return dim < -1; });
    if (found == dims.end()) return std::nullopt;
    return static_cast<size_t>(found - dims.begin());
  }

  // A dim below -1 is a product with an unknown factor. It is wrong if inference knows the dim.
  void check_negative_dims(const Op& op, int64_t index, const Var& var, const VarMeta& meta) {
    const std::optional<size_t> at = negative_dim(var);
    if (!at) return;
    products_.insert(&var);
    const llvm::ArrayRef<int64_t> declared = var.dims();
    bool fits = declared.size() == meta.dims.size();
    for (size_t i = 0; fits && i < declared.size(); ++i)
      fits = declared[i] >= -1 || meta.dims[i] < 0;
    if (fits) return;
    const OpView view{op, index, context_.type_of(op)};
    Location where = Context::place(view);
    where.var = var.name().str();
    context_.error(view, "var-dims",
                   InvalidProgram("var '{}' has dim {} at position {} (expected {} by inference)",
                                  where.var, declared[*at], *at, dims_text(meta.dims)),
                   where);
  }

  Context& context_;
  llvm::DenseSet<const Var*> products_;  // vars whose dims below -1 are accepted or reported
};

}  // namespace

void check_inference(Context& context) {
  ShapeFindings observer(context);
  observe_shapes(context.registry, context.program, observer);
  observer.finish();
}

}  // namespace millrace::ops::verify
