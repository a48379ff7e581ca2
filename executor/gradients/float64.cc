#include "executor/gradients/float64.h"

#include <algorithm>
#include <array>

#include "executor/feed_values.h"
#include "framework/op_attrs.h"

namespace millrace::executor {
namespace {

constexpr auto kFloat = static_cast<int32_t>(DType::kFloat32);
constexpr auto kDouble = static_cast<int32_t>(DType::kFloat64);
constexpr std::array<const char*, 3> kTypeAttrs = {"dtype", "in_dtype", "out_dtype"};

bool is_float32(const AttrValue& value) {
  return value.kind() == AttrKind::kInt && value.integer() == kFloat;
}

void convert_attrs(const ops::OpRegistry& registry, Op& op) {
  const ops::OpDef* const def = registry.find(op.type());
  for (const char* const name : kTypeAttrs) {
    const AttrValue* given = op.find_attr(name);
    if (given == nullptr && def != nullptr) {
      for (const ops::AttrDef& attr : def->attrs())
        if (attr.name == name && attr.fallback) given = &*attr.fallback;
    }
    if (given != nullptr && is_float32(*given)) op.set_int(name, kDouble);
  }
  if (op.type() != "assign_value") return;
  // its numbers are in one attribute per type
  const auto floats = get_attr_or<std::vector<float>>(op, "fp32_values", {});
  if (floats.empty()) return;
  op.set_attr("fp64_values", make_attr(std::vector<double>(floats.begin(), floats.end())));
}

StatusOr<Tensor> tensor_in_float64(const Tensor& from) {
  if (from.dtype() != DType::kFloat32 || !from.initialized()) return from.clone();
  Tensor to;
  MILLRACE_RETURN_IF_ERROR(to.resize(DType::kFloat64, from.dims()));
  std::copy_n(from.data<float>(), from.numel(), to.data<double>());
  to.set_lod(from.lod());
  return to;
}

}  // namespace

void declare_in_float64(const ops::OpRegistry& registry, Program& program) {
  for (Block& block : program.blocks()) {
    for (Var& var : block.vars()) {
      if (!var.spec().has_tensor() || var.dtype() != DType::kFloat32) continue;
      VarSpec spec = var.spec();
      spec.dtype = DType::kFloat64;
      var.set_spec(std::move(spec));
    }
    for (Op& op : block.ops()) convert_attrs(registry, op);
  }
}

StatusOr<Value> in_float64(const Value& value) {
  Value plain;  // kernels may have left it in another layout
  MILLRACE_RETURN_IF_ERROR(copy_value(value, plain));
  if (auto* const tensor = plain.get_if<Tensor>()) {
    MILLRACE_ASSIGN_OR_RETURN(*tensor, tensor_in_float64(*tensor));
  } else if (auto* const rows = plain.get_if<SelectedRows>()) {
    MILLRACE_ASSIGN_OR_RETURN(rows->value, tensor_in_float64(rows->value));
  } else if (auto* const array = plain.get_if<TensorArray>()) {
    for (Tensor& element : *array) {
      MILLRACE_ASSIGN_OR_RETURN(element, tensor_in_float64(element));
    }
  }
  return plain;
}

}  // namespace millrace::executor
