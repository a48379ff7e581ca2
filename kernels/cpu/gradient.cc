#include "kernels/cpu/gradient.h"

#include <string>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"

namespace millrace::kernels {
namespace {

// Fills the result with zeros where the kernel asks for it, or where no gradient arrives.
void start_gradient(const KernelContext& ctx, StartsAs start, const GradientTensors& g) {
  if (g.to != nullptr && g.to->initialized() && (start == StartsAs::kZeros || g.from == nullptr))
    fill_zero(ctx.device(), *g.to);
}

Status check_given(const KernelContext& ctx, const GradientTensors& g, const char* out_slot) {
  if (g.from != nullptr && g.from->initialized()) return Ok();
  return ctx.error("input {}@GRAD holds no tensor", out_slot);
}

}  // namespace

GradientArgs::GradientArgs(const KernelSetup& op, const char* x, const char* out)
    : x_slot_(x),
      out_slot_(out),
      x_(op.input(x)),
      from_(op.input(std::string(out) + "@GRAD")),
      to_(op.output(std::string(x) + "@GRAD")) {}

GradientArgs GradientArgs::named(const KernelSetup& op, llvm::StringRef from, llvm::StringRef to) {
  GradientArgs args;
  args.from_ = op.input(from);
  args.to_ = op.output(to);
  return args;
}

GradientTensors GradientArgs::find(const KernelContext& ctx, StartsAs start) const {
  const GradientTensors g{nullptr, ctx.find_in(from_), ctx.find_out(to_)};
  start_gradient(ctx, start, g);
  return g;
}

StatusOr<GradientTensors> GradientArgs::find_required(const KernelContext& ctx,
                                                      StartsAs start) const {
  const GradientTensors g = find(ctx, start);
  if (g.to != nullptr) MILLRACE_RETURN_IF_ERROR(check_given(ctx, g, out_slot_));
  return g;
}

StatusOr<GradientTensors> GradientArgs::like_x(const KernelContext& ctx, StartsAs start) const {
  GradientTensors g;
  MILLRACE_ASSIGN_OR_RETURN(g.x, needed(ctx, x_, x_slot_));
  MILLRACE_ASSIGN_OR_RETURN(g.to, result_like(ctx, to_, *g.x));
  g.from = ctx.find_in(from_);
  start_gradient(ctx, start, g);
  return g;
}

StatusOr<GradientTensors> GradientArgs::required(const KernelContext& ctx) const {
  GradientTensors g;
  if (!to_) return g;
  MILLRACE_ASSIGN_OR_RETURN(g.x, needed(ctx, x_, x_slot_));
  g.from = ctx.find_in(from_);
  MILLRACE_RETURN_IF_ERROR(check_given(ctx, g, out_slot_));
  MILLRACE_ASSIGN_OR_RETURN(g.to, result_like(ctx, to_, *g.x));
  return g;
}

Status zero_results(const KernelContext& ctx, llvm::ArrayRef<ArgIndex> results) {
  for (const ArgIndex arg : results) {
    if (Tensor* const result = ctx.find_out(arg)) fill_zero(ctx.device(), *result);
  }
  return Ok();
}

}  // namespace millrace::kernels
