#include "kernels/gpu/ops/parts.h"
#include "kernels/registry.h"

// Tensors joined along a dim, and split along one, of elements of any type.
namespace millrace::gpu {
namespace {

int64_t joins_product_of(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

// Parts of a wide tensor along a dim.
struct Joint {
  Device* device;
  int64_t axis;
  bool new_dim;  // stack: each part is one layer of that dim

  // \param parts  absent ones are null
  // \param likes  tensors with the dims of the parts, for absent ones; may be empty
  // \param cuts   the parts are written
  [[nodiscard]] Status run(llvm::ArrayRef<const Tensor*> parts, llvm::ArrayRef<const Tensor*> likes,
                           Tensor& whole, bool cuts) const {
    const auto rank = static_cast<int64_t>(whole.rank());
    const int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank || parts.empty())
      return refuse("axis {} of {}", axis, describe(whole));
    const auto dim = static_cast<size_t>(at);
    const int64_t rows = joins_product_of(whole.dims().take_front(dim));
    const int64_t columns = joins_product_of(whole.dims().drop_front(dim));
    const int64_t layer = joins_product_of(whole.dims().drop_front(dim + 1));
    std::vector<Part> made;
    int64_t sum = 0;
    for (size_t k = 0; k < parts.size(); ++k) {
      const Tensor* const part = parts[k];
      const Tensor* const like = part == nullptr && k < likes.size() ? likes[k] : part;
      if (part != nullptr && (part->dtype() != whole.dtype() || part->raw() == whole.raw()))
        return refuse("{} is no part of {}", describe(*part), describe(whole));
      if (like == nullptr && !new_dim) return refuse("a part is missing");
      if (like != nullptr && rows > 0 && like->numel() % rows != 0)
        return refuse("{} is no part of {}", describe(*like), describe(whole));
      int64_t columns_of_part = layer;
      if (like != nullptr) columns_of_part = rows == 0 ? 0 : like->numel() / rows;
      made.push_back({part == nullptr ? nullptr : part->raw(), columns_of_part});
      sum += made.back().columns;
    }
    if (rows == 0) return Ok();
    if (sum != columns) return refuse("the parts have {} of {} columns", sum, columns);
    return run_parts(*device, cuts, made, rows, dtype_size(whole.dtype()), whole.raw());
  }
};

// Tensors of a slot; absent ones are null. Errors: rejects other values.
StatusOr<llvm::SmallVector<const Tensor*, 8>> joins_inputs(const KernelContext& ctx,
                                                           ArgRange args) {
  llvm::SmallVector<const Tensor*, 8> found;
  for (int32_t k = 0; k < args.count; ++k) {
    const Tensor* const part =
        ctx.has_in(args, k) ? ctx.in_value(args, k).get_if<Tensor>() : nullptr;
    if (part == nullptr && ctx.has_in(args, k)) return refuse("input {} holds no tensor", k);
    found.push_back(part);
  }
  return found;
}

StatusOr<Kernel> join_kernel(const KernelSetup& op, const char* in, const char* out, bool new_dim) {
  if (!new_dim && op.input("AxisTensor")) return refuse("the axis is given by a tensor");
  return Kernel([joint = Joint{&device_of(op), op.attr<int64_t>("axis"), new_dim},
                 parts = op.inputs(in),
                 whole = op.output(out)](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(whole);
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const auto found, joins_inputs(ctx, parts));
    return joint.run(found, {}, *to, false);
  });
}

// \param like  slot of tensors with the dims of the parts; null: none
StatusOr<Kernel> cut_kernel(const KernelSetup& op, const char* in, const char* out, bool new_dim,
                            const char* like = nullptr) {
  if (!new_dim && op.input("AxisTensor")) return refuse("the axis is given by a tensor");
  if (op.inputs("SectionsTensorList").count > 0) return refuse("sections are given by tensors");
  return Kernel(
      [joint = Joint{&device_of(op), op.attr<int64_t>("axis"), new_dim}, in, whole = op.input(in),
       parts = op.outputs(out),
       like = like == nullptr ? ArgRange() : op.inputs(like)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, whole, in));
        llvm::SmallVector<const Tensor*, 8> found;
        for (int32_t k = 0; k < parts.count; ++k)
          found.push_back(ctx.has_out(parts, k) ? &ctx.out(parts, k) : nullptr);
        // cutting reads the wide tensor only
        MILLRACE_ASSIGN_OR_RETURN(const auto likes, joins_inputs(ctx, like));
        return joint.run(found, likes, const_cast<Tensor&>(*from), true);
      });
}

StatusOr<Kernel> gpu_concat(const KernelSetup& op) {
  return join_kernel(op, "X", "Out", /*new_dim=*/false);
}
StatusOr<Kernel> gpu_concat_grad(const KernelSetup& op) {
  return cut_kernel(op, "Out@GRAD", "X@GRAD", /*new_dim=*/false, "X");
}
StatusOr<Kernel> gpu_split(const KernelSetup& op) {
  return cut_kernel(op, "X", "Out", /*new_dim=*/false);
}
StatusOr<Kernel> gpu_stack(const KernelSetup& op) {
  return join_kernel(op, "X", "Y", /*new_dim=*/true);
}
StatusOr<Kernel> gpu_stack_grad(const KernelSetup& op) {
  return cut_kernel(op, "Y@GRAD", "X@GRAD", /*new_dim=*/true);
}
StatusOr<Kernel> gpu_unstack(const KernelSetup& op) {
  return cut_kernel(op, "X", "Y", /*new_dim=*/true);
}
StatusOr<Kernel> gpu_unstack_grad(const KernelSetup& op) {
  return join_kernel(op, "Y@GRAD", "X@GRAD", /*new_dim=*/true);
}
StatusOr<Kernel> gpu_unbind(const KernelSetup& op) {
  return cut_kernel(op, "X", "Out", /*new_dim=*/true);
}

}  // namespace

void add_joins(KernelRegistry& registry) {
  registry.add("concat", gpu_concat);
  registry.add("concat_grad", gpu_concat_grad);
  registry.add("split", gpu_split);
  registry.add("stack", gpu_stack);
  registry.add("stack_grad", gpu_stack_grad);
  registry.add("unstack", gpu_unstack);
  registry.add("unstack_grad", gpu_unstack_grad);
  registry.add("unbind", gpu_unbind);
}

}  // namespace millrace::gpu
