#include "kernels/cpu/int_list.h"

#include "ops/infer_context.h"

namespace millrace::kernels {
namespace {

// The tensor of an argument that the op has. Errors: the value holds no initialized tensor.
StatusOr<const Tensor*> present(const Value& value, llvm::StringRef slot) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor != nullptr && tensor->initialized()) return tensor;
  return KernelContext::error("input {} holds no tensor", slot.str());
}

// Ops that accept the numbers both as one tensor and as a list of tensors, and for which the list
// wins. For all other ops the single tensor wins.
bool takes_list(llvm::StringRef type) {
  return type == "reshape" || type == "reshape2" || type == "crop_tensor" ||
         type.startswith("uniform_random") || type == "gaussian_random" ||
         type == "truncated_gaussian_random" || type == "randint";
}

}  // namespace

Status append_ints(const Tensor& tensor, llvm::StringRef name, Ints& out) {
  if (tensor.dtype() == DType::kInt32) {
    const auto values = tensor.values<int32_t>();
    out.append(values.begin(), values.end());
  } else if (tensor.dtype() == DType::kInt64) {
    const auto values = tensor.values<int64_t>();
    out.append(values.begin(), values.end());
  } else {
    return KernelContext::error("{} must be int32 or int64, found {}", name.str(),
                                describe(tensor));
  }
  return Ok();
}

StatusOr<int64_t> one_int(const Tensor& tensor, llvm::StringRef name) {
  if (tensor.numel() != 1) {
    return KernelContext::error("{} must have one element, found {}", name.str(), describe(tensor));
  }
  Ints values;
  MILLRACE_RETURN_IF_ERROR(append_ints(tensor, name, values));
  return values[0];
}

IntList::IntList(const KernelSetup& op, llvm::StringRef attr, llvm::StringRef tensor,
                 llvm::StringRef list)
    : fixed_(op.attr<std::vector<int64_t>>(attr)), tensor_name_(tensor), list_name_(list) {
  if (!tensor.empty()) tensor_ = op.input(tensor);
  if (!list.empty()) list_ = op.inputs(list);
  if (!tensor_ || list_.count == 0) return;
  takes_list(op.op().type()) ? void(tensor_ = {}) : void(list_ = {});
}

StatusOr<Ints> IntList::read(const KernelContext& ctx) const {
  Ints out;
  if (list_.count > 0) {
    for (int32_t k = 0; k < list_.count; ++k) {
      if (!ctx.has_in(list_, k))
        return KernelContext::error("input {}[{}] is missing", list_name_.str(), k);
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const element,
                                present(ctx.in_value(list_, k), list_name_));
      MILLRACE_ASSIGN_OR_RETURN(const int64_t value, one_int(*element, list_name_));
      out.push_back(value);
    }
    return out;
  }
  if (tensor_) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor,
                              present(ctx.in_value(tensor_), tensor_name_));
    MILLRACE_RETURN_IF_ERROR(append_ints(*tensor, tensor_name_, out));
    return out;
  }
  out.assign(fixed_.begin(), fixed_.end());
  return out;
}

StatusOr<int64_t> axis_of(int64_t axis, size_t rank) {
  const auto count = static_cast<int64_t>(rank == 0 ? 1 : rank);
  if (axis < -count || axis >= count) {
    return KernelContext::error("the axis is {}, expected one of [-{}, {})", axis, count, count);
  }
  return axis < 0 ? axis + count : axis;
}

AxisArg::AxisArg(const KernelSetup& op, llvm::StringRef attr, llvm::StringRef tensor)
    : fixed_(op.attr<int64_t>(attr)), tensor_(op.input(tensor)), tensor_name_(tensor) {}

StatusOr<int64_t> AxisArg::read(const KernelContext& ctx, size_t rank) const {
  int64_t axis = fixed_;
  if (tensor_) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor,
                              present(ctx.in_value(tensor_), tensor_name_));
    MILLRACE_ASSIGN_OR_RETURN(axis, one_int(*tensor, tensor_name_));
  }
  return axis_of(axis, rank);
}

Status size_output(Tensor& out, DType dtype, llvm::ArrayRef<int64_t> dims) {
  if (out.initialized() && out.dtype() == dtype && out.dims() == dims) return Ok();
  return out.resize(dtype, dims);
}

}  // namespace millrace::kernels
