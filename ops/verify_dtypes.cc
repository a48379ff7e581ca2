#include <array>

#include "framework/base/errors.h"
#include "ops/infer_context.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {

// The kernels of an op need the same element type for all vars of both slots, or of the first slot
// if there is no second one.
struct DtypeRule {
  std::string_view type;
  std::string_view first;
  std::string_view second;
  std::string_view indices = {};  // slot that must hold integers
  bool dense = false;             // the two slots must not hold selected rows
};

namespace {

constexpr std::array<DtypeRule, 41> kRules = {{
    {"bmm", "X", "Y", {}, true},
    {"concat", "X", {}},
    {"conv2d", "Input", "Filter", {}, true},
    {"conv2d_transpose", "Input", "Filter", {}, true},
    {"conv3d", "Input", "Filter", {}, true},
    {"conv3d_transpose", "Input", "Filter", {}, true},
    {"cos_sim", "X", "Y", {}, true},
    {"depthwise_conv2d", "Input", "Filter", {}, true},
    {"dot", "X", "Y", {}, true},
    {"elementwise_add", "X", "Y"},
    {"elementwise_div", "X", "Y"},
    {"elementwise_floordiv", "X", "Y"},
    {"elementwise_max", "X", "Y"},
    {"elementwise_min", "X", "Y"},
    {"elementwise_mod", "X", "Y"},
    {"elementwise_mul", "X", "Y"},
    {"elementwise_pow", "X", "Y"},
    {"elementwise_sub", "X", "Y"},
    {"equal", "X", "Y"},
    {"fc", "Input", "W", {}, true},
    {"gather", {}, {}, "Index"},
    {"gather_nd", {}, {}, "Index"},
    {"greater_equal", "X", "Y"},
    {"greater_than", "X", "Y"},
    {"less_equal", "X", "Y"},
    {"less_than", "X", "Y"},
    {"lookup_sparse_table", {}, {}, "Ids"},
    {"lookup_table", {}, {}, "Ids"},
    {"lookup_table_v2", {}, {}, "Ids"},
    {"matmul", "X", "Y", {}, true},
    {"matmul_v2", "X", "Y", {}, true},
    {"minus", "X", "Y", {}, true},
    {"momentum", "Param", "Grad"},
    {"mul", "X", "Y", {}, true},
    {"not_equal", "X", "Y"},
    {"one_hot", {}, {}, "X"},
    {"one_hot_v2", {}, {}, "X"},
    {"scatter", {}, {}, "Ids"},
    {"sgd", "Param", "Grad"},
    {"stack", "X", {}},
    {"where", "X", "Y"},
}};

// Adds slot, index and var of an input to an error.
Status at_input(Status status, const InferContext& ctx, std::string_view slot, size_t index) {
  Location where;
  where.slot = "input " + std::string(slot);
  where.slot_index = static_cast<int>(index);
  const Slot* const found = ctx.op().find_input({slot.data(), slot.size()});
  if (found != nullptr && index < found->args.size())
    where.var = ctx.op().name_of(found->args[index].name).str();
  return std::move(status).at(std::move(where));
}

Status check_same(const DtypeRule& rule, const InferContext& ctx) {
  const VarMeta* first = nullptr;
  std::string_view first_slot;
  for (const std::string_view slot : {rule.first, rule.second}) {
    if (slot.empty()) continue;
    const llvm::StringRef name(slot.data(), slot.size());
    for (size_t i = 0; i < ctx.input_count(name); ++i) {
      const VarMeta& meta = ctx.input(name, i);
      if (!meta.has_shape) continue;
      if (rule.dense && meta.kind == VarKind::kSelectedRows)
        return at_input(ctx.error("{} holds sparse rows (expected a dense tensor)", slot), ctx,
                        slot, i);
      if (first == nullptr) {
        first = &meta;
        first_slot = slot;
      } else if (meta.dtype != first->dtype) {
        return at_input(
            ctx.error("{} is of {}, but {} is of {} (expected the same data type)", first_slot,
                      dtype_name(first->dtype), slot, dtype_name(meta.dtype)),
            ctx, slot, i);
      }
    }
  }
  return Ok();
}

}  // namespace

const DtypeRule* find_dtype_rule(llvm::StringRef type) {
  for (const DtypeRule& rule : kRules) {
    if (text(type) == rule.type) return &rule;
  }
  return nullptr;
}

Status check_dtypes(const DtypeRule& rule, const InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same(rule, ctx));
  if (rule.indices.empty()) return Ok();
  const VarMeta& indices = ctx.input({rule.indices.data(), rule.indices.size()});
  if (!indices.has_shape || is_integer(indices.dtype)) return Ok();
  return ctx.error("{} is of {} (expected whole numbers)", rule.indices, dtype_name(indices.dtype));
}

}  // namespace millrace::ops::verify
