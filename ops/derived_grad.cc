#include "ops/derived_grad.h"

#include <llvm/ADT/STLExtras.h>

#include "ops/infer_context.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"

namespace millrace::ops {
namespace derived_grad {
namespace {

constexpr llvm::StringLiteral kDerivedGradGradSuffix = "@GRAD";

Arity relaxed(Arity arity) {
  return arity == Arity::kMany || arity == Arity::kAny ? Arity::kAny : Arity::kOptional;
}

// The input slot whose vars have the shapes of the gradient slot; empty if the op lacks it.
llvm::StringRef shape_source(const InferContext& ctx, const GradSpec& spec,
                             llvm::StringRef grad_slot) {
  const llvm::StringRef forward_slot = grad_slot.drop_back(kDerivedGradGradSuffix.size());
  if (ctx.has_input(forward_slot)) return forward_slot;
  for (const auto& [output, like] : spec.shape_like) {
    if (output == grad_slot && ctx.has_input(like)) return like;
  }
  return {};
}

Status infer_grad(InferContext& ctx, bool with_offsets) {
  const GradSpec& spec = *ctx.def().forward()->grad_spec();
  for (const SlotDef& slot : ctx.def().outputs()) {
    const llvm::StringRef source = shape_source(ctx, spec, slot.name);
    if (source.empty()) continue;
    // argument positions, not vars: a position with the placeholder @EMPTY@ counts, too
    const Slot* const outputs = ctx.op().find_output(slot.name);
    const Slot* const inputs = ctx.op().find_input(source);
    if (outputs == nullptr || inputs == nullptr) continue;
    const size_t count = std::min(outputs->args.size(), inputs->args.size());
    for (size_t i = 0; i < count; ++i) {
      VarMeta meta = ctx.input(source, i);
      if (spec.drops_lod) meta.lod_level = 0;
      if (spec.drops_lod || !with_offsets) meta.lod = {};
      ctx.set_output(slot.name, std::move(meta), i);
    }
  }
  return Ok();
}

Status infer_grad_with_offsets(InferContext& ctx) {
  return infer_grad(ctx, /*with_offsets=*/true);
}

}  // namespace
}  // namespace derived_grad

void copy_each_without_offsets(InferContext& ctx, llvm::StringRef input_slot,
                               llvm::StringRef output_slot) {
  const size_t count = paired_args(ctx, input_slot, output_slot);
  for (size_t i = 0; i < count; ++i)
    ctx.set_output(output_slot, without_offsets(ctx.input(input_slot, i)), i);
}

Status infer_grad_without_offsets(InferContext& ctx) {
  return derived_grad::infer_grad(ctx, /*with_offsets=*/false);
}

OpDef derive_grad_def(const OpDef& forward, llvm::StringSaver& saver) {
  using namespace derived_grad;
  const GradSpec& spec = *forward.grad_spec();
  OpDef def(saver.save(spec.type));
  def.doc("gradient, derived from the schema of the forward op");
  for (const SlotDef& slot : forward.inputs())
    def.input(slot.name, slot.doc, relaxed(slot.arity), slot.kinds);
  for (const SlotDef& slot : forward.outputs()) {
    if (def.find_input(slot.name) == nullptr)
      def.input(slot.name, slot.doc, relaxed(slot.arity), slot.kinds);
  }
  for (const SlotDef& slot : forward.outputs()) {
    const llvm::StringRef name = saver.save(slot.name + kDerivedGradGradSuffix);
    if (def.find_input(name) == nullptr) {
      def.input(name, "gradient of that output", relaxed(slot.arity), slot.kinds | kTensorLike);
    }
  }
  for (const SlotDef& slot : forward.inputs()) {
    def.output(saver.save(slot.name + kDerivedGradGradSuffix), "gradient of that input",
               relaxed(slot.arity), slot.kinds | kTensorLike);
  }
  for (const AttrDef& attr : forward.attrs()) {
    AttrDef copy = attr;
    if (!copy.fallback && attr.kind != AttrKind::kBlock && attr.kind != AttrKind::kBlocks) {
      // Not required, and no defaults: gradient ops of old programs may lack attributes.
      copy.fallback = zero_value(attr.kind);
    }
    def.add_attr_def(std::move(copy));
  }
  def.infer(spec.infer != nullptr ? spec.infer : infer_grad_with_offsets).flops(forward.flops_fn());
  if (forward.block_shared()) def.shares_block();
  return def;
}

}  // namespace millrace::ops
