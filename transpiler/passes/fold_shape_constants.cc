#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"
#include "transpiler/shape_constants.h"

namespace millrace::transpiler {
namespace fold_shape_constants {
namespace {

// An attribute that a list of one-element tensors, or one tensor, may override.
struct TensorAttr {
  const char* op;
  const char* list_slot;
  const char* slot;
  const char* attr;
  bool infers_one;  // one entry may be -1: computed from the others
};

constexpr TensorAttr kTensorAttrs[] = {
    {"reshape2", "ShapeTensor", "Shape", "shape", true},
    {"reshape", "ShapeTensor", "Shape", "shape", true},
    {"fill_constant", "ShapeTensorList", "ShapeTensor", "shape", false},
    {"expand_v2", "expand_shapes_tensor", "Shape", "shape", false},
    {"slice", "StartsTensorList", "StartsTensor", "starts", false},
    {"slice", "EndsTensorList", "EndsTensor", "ends", false},
};

// The values of the tensors of a slot, or nullopt if not all are known.
std::optional<std::vector<int32_t>> attr_of(const Slot& slot, const ShapeConstants& constants,
                                            bool infers_one) {
  std::vector<int32_t> out;
  bool has_negative = false;
  int unknown = 0;
  for (const Arg& arg : slot.args) {
    const ShapeConstant* const constant = constants.find(arg.name);
    if (constant == nullptr) return std::nullopt;
    for (const std::optional<int64_t>& value : constant->values) {
      if (value && *value != static_cast<int32_t>(*value)) return std::nullopt;
      unknown += value ? 0 : 1;
      has_negative |= value && *value < 0;
      out.push_back(static_cast<int32_t>(value.value_or(-1)));
    }
  }
  const bool enough = unknown == 0 || (infers_one && unknown == 1 && !has_negative);
  return enough ? std::optional(std::move(out)) : std::nullopt;
}

bool use_constants(Op& op, const ShapeConstants& constants) {
  bool changed = false;
  for (const TensorAttr& entry : kTensorAttrs) {
    if (op.type() != entry.op) continue;
    // as in the kernels, the single tensor overrides the list, except for the list of a reshape
    const Slot* const whole = op.find_input(entry.slot);
    const Slot* const list = op.find_input(entry.list_slot);
    const bool has_whole = whole != nullptr && !whole->args.empty();
    const bool has_list = list != nullptr && !list->args.empty();
    if (!has_whole && !has_list) continue;
    const bool takes_list = has_list && (!has_whole || op.type().startswith("reshape"));
    const Slot* const slot = takes_list ? list : whole;
    const auto values = attr_of(*slot, constants, entry.infers_one);
    if (!values) continue;
    const AttrValue* const old = op.find_attr(entry.attr);
    const bool longs = old != nullptr && old->kind() == AttrKind::kLongs;
    op.set_attr(entry.attr, longs ? AttrValue::of_longs({values->begin(), values->end()})
                                  : AttrValue::of_ints(*values));
    op.remove_input(entry.slot);
    op.remove_input(entry.list_slot);
    // entries of -1 mean that a bound is known only at run time
    if (op.type() == "slice" && op.has_attr("infer_flags"))
      op.set_attr("infer_flags", AttrValue::of_ints(std::vector<int32_t>(values->size(), 1)));
    changed = true;
  }
  return changed;
}

// Replaces the op by an assign_value with the known values.
bool replace(Op& op, const ShapeConstant& constant) {
  const std::string out = op.first_output("Out").str();
  if (op.inputs().empty() || !only_output_read(op, out)) return false;
  std::vector<int64_t> values;
  for (const auto& value : constant.values) values.push_back(*value);
  const llvm::ArrayRef<int64_t> dims = op.block().find_var_recursive(out)->dims();
  Op& added = op.block().insert_before(&op, "assign_value");
  added.set_output("Out", out);
  added.set_attr("shape", AttrValue::of_ints({dims.begin(), dims.end()}));
  added.set_int("dtype", static_cast<int32_t>(constant.dtype));
  if (constant.dtype == DType::kInt32) {
    added.set_attr("int32_values", AttrValue::of_ints({values.begin(), values.end()}));
  } else {
    added.set_attr("int64_values", AttrValue::of_longs(values));
  }
  for (const char* name : {"op_role", "op_device", "op_callstack"}) {
    if (const AttrValue* const value = op.find_attr(name)) added.set_attr(name, *value);
  }
  op.block().erase(op);
  return true;
}

class FoldShapeConstants final : public Pass {
 public:
  llvm::StringRef name() const override { return "fold-shape-constants"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    ShapeConstants constants(program);
    bool changed = false;
    for (Block& block : program.blocks()) {
      for (Op* const op : block.op_vector()) {
        changed |= use_constants(*op, constants);
        const ShapeConstant* const constant = constants.evaluate(*op);
        if (constant != nullptr && constant->complete()) changed |= replace(*op, *constant);
      }
    }
    return changed;
  }
};

}  // namespace
}  // namespace fold_shape_constants

void add_passes_fold_shape_constants(PassRegistry& registry) {
  registry.add(
      PassInfo("fold-shape-constants",
               "compute integer tensors that depend only on declared shapes and constants, and put "
               "them into the attributes of reshape2, slice, expand_v2 and fill_constant")
          .makes<fold_shape_constants::FoldShapeConstants>());
}

}  // namespace millrace::transpiler
