#include "framework/program.h"
#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace assign_ops {
namespace {

constexpr uint32_t kAssignData = kTensorLike | kTensorArray;

StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("assign");
  op.input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
  return one_grad_op(std::move(op));
}

// One of the value lists is used, chosen by the element type.
const char* values_attr(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool_values";
    case DType::kInt32:
      return "int32_values";
    case DType::kInt64:
      return "int64_values";
    case DType::kFloat32:
      return "fp32_values";
    case DType::kFloat64:
      return "fp64_values";
    default:
      return nullptr;
  }
}

size_t value_count(const InferContext& ctx, const char* attr) {
  const AttrValue* const value = ctx.op().find_attr(attr);
  if (value == nullptr) return 0;
  if (const auto longs = convert_attr(*value, AttrKind::kLongs))
    return attr_cast<std::vector<int64_t>>(*longs).size();
  if (const auto doubles = convert_attr(*value, AttrKind::kFloat64s))
    return attr_cast<std::vector<double>>(*doubles).size();
  return 0;
}

Status infer_assign_value(InferContext& ctx) {
  const auto shape = ctx.attr<std::vector<int64_t>>("shape");
  const DType dtype = ctx.dtype_attr("dtype");
  const char* const attr = values_attr(dtype);
  if (attr == nullptr) {
    return ctx.error("attribute 'dtype' is {}, expected bool, int32, int64, float32 or float64",
                     static_cast<int>(dtype));
  }
  // Releases from 2.5 on may store the list in attribute "values", whose length is not checked
  // here.
  const size_t found = value_count(ctx, attr);
  const int64_t wanted = dims_product(shape);
  if (!ctx.op().has_attr("values") && wanted >= 0 && static_cast<int64_t>(found) != wanted) {
    return ctx.error("attribute '{}' has {} elements, expected {} for 'shape' {}", attr, found,
                     wanted, dims_text(shape));
  }
  ctx.set_output("Out", dtype, shape);
  return Ok();
}

Status infer_increment(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "X", 1));
  ctx.copy("X", "Out");
  return Ok();
}

bool is_float(const Var* var) {
  return var != nullptr && var->spec().has_tensor() &&
         (var->dtype() == DType::kFloat32 || var->dtype() == DType::kFloat64);
}

// An in-place increment is a loop counter, which the gradient counts back: same var, negative step.
// A float that is written to another var has the gradient of a sum; the original loses it.
StatusOr<std::vector<GradOp>> grad_increment(const GradContext& ctx) {
  const llvm::StringRef x = ctx.forward().first_input("X");
  if (!ctx.forward().writes(x) && is_float(ctx.forward().block().find_var_recursive(x)))
    return grad(ctx);
  GradOp op("increment");
  op.input("X", ctx.output("Out")).output("Out", ctx.input("X"));
  const float step = get_attr_or<float>(ctx.forward(), "step", 1.0F);
  op.attr("step", make_attr(-step));
  return one_grad_op(std::move(op));
}

Status infer_is_empty(InferContext& ctx) {
  ctx.set_output("Out", DType::kBool, {});
  return Ok();
}

Status infer_copy(InferContext& ctx) {
  ctx.copy("X", "Out");
  return Ok();
}

Status infer_memory_helper(InferContext& ctx) {
  ctx.copy("X", "Out");
  const VarMeta& x = ctx.input("X");
  if (!ctx.op().has_attr("dtype") || !dims_known(x)) return Ok();
  const auto dtype = static_cast<DType>(ctx.attr<int32_t>("dtype"));
  if (dtype == x.dtype) return Ok();
  return ctx.error("attribute 'dtype' is {}, but 'X' is {}", dtype_name(dtype),
                   dtype_name(x.dtype));
}

}  // namespace
}  // namespace assign_ops

void add_control_flow_assign(OpRegistry& registry) {
  using namespace assign_ops;
  registry.add(OpDef("assign")
                   .doc("Out = X")
                   .input("X", "any shape and kind", Arity::kOptional, kAssignData)
                   .output("Out", "copy of X", Arity::kOne, kAssignData)
                   .infer(infer_copy)
                   .grad(grad)
                   .inplace("X", "Out"));
  registry.add(OpDef("assign_value")
                   .doc("Out = the values of the attribute for dtype")
                   .output("Out", "dims of attribute shape")
                   .required_attr<std::vector<int64_t>>("shape", "dims of Out")
                   .range(-1)
                   .required_attr<int32_t>("dtype", "element type, VarType number")
                   .attr("bool_values", std::vector<int32_t>{}, "0 or 1")
                   .attr("fp32_values", std::vector<float>{}, "elements in row-major order")
                   .attr("fp64_values", std::vector<double>{}, "elements in row-major order")
                   .attr("int32_values", std::vector<int32_t>{}, "elements in row-major order")
                   .attr("int64_values", std::vector<int64_t>{}, "elements in row-major order")
                   .infer(infer_assign_value));
  registry.add(OpDef("increment")
                   .doc("Out = X + step")
                   .input("X", "one element")
                   .output("Out", "dims of X, often X itself")
                   .attr("step", 1.0F, "summand")
                   .infer(infer_increment)
                   .grad(grad_increment)
                   .inplace("X", "Out"));
  registry.add(OpDef("is_empty")
                   .doc("whether X has no elements")
                   .input("X", "any shape")
                   .output("Out", "one bool")
                   .attr("force_cpu", true, "no effect")
                   .infer(infer_is_empty));
  registry.add(
      OpDef("memcpy")
          .doc("Out = X, on another place")
          .input("X", "any shape")
          .output("Out", "copy of X")
          .attr("dst_place_type", -1, "where the original copies to: 0 CPU, 1 GPU; no effect")
          .infer(infer_copy));
  registry.add(OpDef("rnn_memory_helper")
                   .doc("Out = X; a missing gradient counts as zero")
                   .input("X", "state of a recurrent net")
                   .output("Out", "copy of X")
                   .attr("dtype", 5, "element type, VarType number")
                   .infer(infer_memory_helper)
                   .grad({"rnn_memory_helper_grad", {"Out@GRAD", "X", "Out"}, {"X@GRAD"}, {}})
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
