#include <vector>

#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct FlattenConcatAttrs {
  std::vector<int64_t> axes;
  size_t flatten = 0;
  bool columns = false;  // operands are concatenated along columns
};

// Writes the operand as a matrix from position `first` of Out on. Returns its rows and columns.
StatusOr<std::pair<int64_t, int64_t>> put_matrix(const KernelContext& ctx,
                                                 const FlattenConcatAttrs& attrs, const Tensor& x,
                                                 Tensor& out, int64_t first) {
  if (x.rank() != attrs.axes.size() || x.dtype() != out.dtype())
    return ctx.error("attribute 'trans_axis' has {} entries, which does not fit to X {}",
                     attrs.axes.size(), describe(x));
  const Dims strides = row_major(x.dims());
  StridedBox box;
  int64_t rows = 1;
  int64_t columns = 1;
  for (size_t i = 0; i < attrs.axes.size(); ++i) {
    const auto axis = static_cast<size_t>(attrs.axes[i]);
    box.push(x.dims()[axis], 0, strides[axis]);
  }
  for (size_t i = attrs.axes.size(); i-- > 0;) {
    const bool is_column = i >= attrs.flatten;
    box.to[i] = is_column ? columns : rows * out.dim(1);
    (is_column ? columns : rows) *= box.dims[i];
  }
  const int64_t begin = attrs.columns ? first : first * out.dim(1);
  const bool fits = attrs.columns ? rows == out.dim(0) && first + columns <= out.dim(1)
                                  : columns == out.dim(1) && first + rows <= out.dim(0);
  if (!fits) return ctx.error("X {} does not fit into Out {}", describe(x), describe(out));
  if (x.numel() > 0) {
    const int64_t size = dtype_size(x.dtype());
    copy_strided(ctx.device(), size, box, out.raw() + begin * size, x.raw());
  }
  return std::pair(rows, columns);
}

StatusOr<Kernel> flatten_concat(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgIndex out = op.output("Out");
  FlattenConcatAttrs attrs{op.attr<std::vector<int64_t>>("trans_axis"),
                           static_cast<size_t>(op.attr<int64_t>("flatten_axis")),
                           op.attr<int64_t>("concat_axis") == 1};
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor& to = ctx.out(out);
    int64_t first = 0;
    for (int32_t k = 0; k < x.count; ++k) {
      MILLRACE_ASSIGN_OR_RETURN(const auto size, put_matrix(ctx, attrs, ctx.in(x, k), to, first));
      first += attrs.columns ? size.second : size.first;
    }
    return Ok();
  });
}

}  // namespace

void add_tensor_flatten_concat(KernelRegistry& registry) {
  registry.add("fusion_transpose_flatten_concat", flatten_concat);
}

}  // namespace millrace::kernels
