#include "kernels/cpu/reduce/axes.h"

#include "kernels/cpu/convert.h"

namespace millrace::kernels {
namespace {

Status append(const Tensor& tensor, std::vector<int64_t>& to) {
  if (tensor.dtype() != DType::kInt32 && tensor.dtype() != DType::kInt64)
    return KernelContext::error("axes must be integers, found {}", describe(tensor));
  const size_t before = to.size();
  to.resize(before + static_cast<size_t>(tensor.numel()));
  return convert(tensor.dtype(), tensor.raw(), DType::kInt64,
                 reinterpret_cast<std::byte*>(to.data() + before), tensor.numel());
}

}  // namespace

ReduceAxes::ReduceAxes(const KernelSetup& op, const char* attr, const char* keep)
    : tensor_(op.input("AxisTensor")),
      list_(op.inputs("AxisTensorList")),
      fixed_(op.attr<std::vector<int64_t>>(attr)),
      all_(op.attr<bool>("reduce_all")),
      keep_(op.attr<bool>(keep)) {}

StatusOr<std::vector<int64_t>> ReduceAxes::read(const KernelContext& ctx) const {
  std::vector<int64_t> axes;
  for (int32_t k = 0; k < list_.count; ++k) {
    if (ctx.has_in(list_, k)) MILLRACE_RETURN_IF_ERROR(append(ctx.in(list_, k), axes));
  }
  if (axes.empty() && tensor_) MILLRACE_RETURN_IF_ERROR(append(ctx.in(tensor_), axes));
  return axes;
}

StatusOr<const ReduceAxes::Plan*> ReduceAxes::plan(const KernelContext& ctx,
                                                   llvm::ArrayRef<int64_t> x) {
  if (filled_ && !from_tensors() && x == llvm::ArrayRef<int64_t>(x_)) return &plan_;
  std::vector<int64_t> axes = fixed_;
  if (from_tensors()) {
    MILLRACE_ASSIGN_OR_RETURN(axes, read(ctx));
  }
  llvm::SmallVector<bool, 8> gone(std::max<size_t>(x.size(), 1), all_ || axes.empty());
  for (const int64_t axis : axes) {
    const auto at = ops::normalize_axis(axis, gone.size());
    if (!at) {
      return KernelContext::error("axis {} is outside of [-{}, {}) for X {}", axis, gone.size(),
                                  gone.size(), ops::dims_text(x));
    }
    gone[static_cast<size_t>(*at)] = true;
  }
  llvm::SmallVector<ReduceNest::Level, 8> levels(x.size());  // innermost last
  ReduceNest::Offsets stride = {1, 1};
  for (size_t i = x.size(); i-- > 0;) {
    levels[i] = {x[i], {stride[kIn], gone[i] ? 0 : stride[kReduced]}};
    stride[kIn] *= x[i];
    if (!gone[i]) stride[kReduced] *= x[i];
  }
  plan_ = {};
  for (size_t i = 0; i < x.size(); ++i) {
    plan_.nest.add(levels[i].size, levels[i].stride);
    if (!gone[i] || keep_) plan_.out_dims.push_back(gone[i] ? 1 : x[i]);
  }
  plan_.out_count = stride[kReduced];
  x_.assign(x.begin(), x.end());
  filled_ = true;
  return &plan_;
}

}  // namespace millrace::kernels
