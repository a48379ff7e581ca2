#include "tests/transpiler/small_net.h"

#include "framework/attribute.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

void declare_parameter(Block& block, const std::string& name, llvm::ArrayRef<int64_t> dims) {
  VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
  spec.persistable = true;
  spec.is_parameter = true;
  block.declare(name, std::move(spec));
}

void append_sgd(Block& block, const std::string& param) {
  Op& op = block.append_op("sgd");
  op.set_input("Param", param).set_input("Grad", param + "@GRAD");
  op.set_input("LearningRate", "lr").set_output("ParamOut", param);
  op.set_int("op_role", role::kOptimize).set_strings("op_role_var", {param, param + "@GRAD"});
}

void append_initializer(Block& block, const std::string& var, std::vector<int64_t> shape) {
  Op& op = block.append_op("fill_constant");
  op.set_output("Out", var).set_int("op_role", 0).set_float("value", 1);
  op.set_attr("shape", AttrValue::of_longs(std::move(shape)));
}

bool looks_up(const SmallNetOptions& options) {
  return options.is_sparse || options.is_distributed;
}

void append_backward(Block& block, const SmallNetOptions& options) {
  if (options.two_pairs) {
    Op& both = block.append_op("fc_grad").set_input("Out@GRAD", "loss@GRAD");
    both.set_output("W@GRAD", "w@GRAD").set_output("B@GRAD", "b@GRAD");
    both.set_int("op_role", 1).set_strings("op_role_var", {"w", "w@GRAD", "b", "b@GRAD"});
    return;
  }
  Op& bias = block.append_op("elementwise_add_grad").set_input("Out@GRAD", "loss@GRAD");
  bias.set_output("X@GRAD", "h@GRAD").set_output("Y@GRAD", "b@GRAD");
  bias.set_int("op_role", 1).set_strings("op_role_var", {"b", "b@GRAD"});
  Op& weight = block.append_op(looks_up(options) ? "lookup_table_grad" : "mul_grad");
  if (looks_up(options)) weight.set_input("W", "w").set_input("Ids", "x");
  weight.set_input("Out@GRAD", "h@GRAD");
  weight.set_output(looks_up(options) ? "W@GRAD" : "Y@GRAD", "w@GRAD");
  weight.set_int("op_role", 1).set_strings("op_role_var", {"w", "w@GRAD"});
}

std::unique_ptr<Program> small_main(const SmallNetOptions& options) {
  auto program = Program::create();
  Block& block = program->root();
  const Dims shape{options.rows, options.columns};
  block.declare("x", VarSpec::tensor(looks_up(options) ? DType::kInt64 : DType::kFloat32,
                                     {-1, looks_up(options) ? 1 : options.rows}));
  declare_parameter(block, "w", shape);
  declare_parameter(block, "b", {options.columns});
  VarSpec weight_grad = VarSpec::tensor(DType::kFloat32, shape);
  if (options.is_sparse) {
    weight_grad.kind = VarKind::kSelectedRows;
    weight_grad.form = TensorForm::kSelectedRows;
  }
  block.declare("w@GRAD", std::move(weight_grad));
  block.declare("b@GRAD", VarSpec::tensor(DType::kFloat32, {options.columns}));
  for (const char* name : {"h", "h@GRAD", "y"}) {
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, options.columns}));
  }
  for (const char* name : {"loss", "loss@GRAD"}) {
    block.declare(name, VarSpec::tensor(DType::kFloat32, {1}));
  }
  VarSpec rate = VarSpec::tensor(DType::kFloat32, {1});
  rate.persistable = true;
  block.declare("lr", std::move(rate));

  if (looks_up(options)) {
    Op& look_up = block.append_op("lookup_table").set_input("Ids", "x").set_input("W", "w");
    look_up.set_output("Out", "h").set_int("op_role", 0).set_bool("is_sparse", true);
    look_up.set_bool("is_distributed", options.is_distributed).set_bool("remote_prefetch", true);
  } else {
    Op& product = block.append_op("mul").set_input("X", "x").set_input("Y", "w");
    product.set_output("Out", "h").set_int("op_role", 0);
  }
  Op& sum = block.append_op("elementwise_add").set_input("X", "h").set_input("Y", "b");
  sum.set_output("Out", "y").set_int("op_role", 0);
  block.append_op("mean").set_input("X", "y").set_output("Out", "loss").set_int("op_role", 256);
  block.append_op("fill_constant").set_output("Out", "loss@GRAD").set_int("op_role", 257);
  append_backward(block, options);
  append_sgd(block, "w");
  append_sgd(block, "b");
  return program;
}

}  // namespace

SmallNet small_net(const SmallNetOptions& options) {
  auto startup = Program::create();
  Block& block = startup->root();
  declare_parameter(block, "b", {options.columns});
  declare_parameter(block, "w", Dims{options.rows, options.columns});
  append_initializer(block, "w", {options.rows, options.columns});
  append_initializer(block, "b", {options.columns});
  return {small_main(options), std::move(startup)};
}

namespace {

std::string slots_text(const Op& op, llvm::ArrayRef<Slot> slots) {
  std::string out;
  for (const Slot& slot : slots) {
    out += (out.empty() ? "" : " ") + op.name_of(slot.name).str() + "=";
    for (size_t i = 0; i < slot.args.size(); ++i) {
      out += (i == 0 ? "" : ",") + op.name_of(slot.args[i].name).str();
    }
  }
  return out;
}

std::string attr_text(const AttrValue& value) {
  std::string out;
  auto join = [&](const std::string& item) { out += (out.empty() ? "" : ",") + item; };
  switch (value.kind()) {
    case AttrKind::kFloat:
      return std::to_string(value.float32());
    case AttrKind::kString:
      return value.string().str();
    case AttrKind::kStrings:
      for (const std::string& item : value.strings()) join(item);
      return "[" + out + "]";
    case AttrKind::kInts:
    case AttrKind::kBlocks:
      for (const int32_t item : value.ints()) join(std::to_string(item));
      return "[" + out + "]";
    case AttrKind::kLongs:
      for (const int64_t item : value.longs()) join(std::to_string(item));
      return "[" + out + "]";
    default:
      return std::to_string(value.integer());
  }
}

}  // namespace

std::string op_line(const Op& op, const std::vector<std::string>& attrs) {
  std::string line = op.type().str() + "(" + slots_text(op, op.inputs()) + ")";
  if (!op.outputs().empty()) line += " -> " + slots_text(op, op.outputs());
  line += " #" + std::to_string(role::of(op));
  for (const std::string& name : attrs) {
    if (const AttrValue* const value = op.find_attr(name)) {
      line += " " + name + "=" + attr_text(*value);
    }
  }
  return line;
}

std::vector<std::string> op_lines(const Block& block, const std::vector<std::string>& attrs) {
  std::vector<std::string> out;
  for (const Op& op : block.ops()) out.push_back(op_line(op, attrs));
  return out;
}

}  // namespace millrace::transpiler
