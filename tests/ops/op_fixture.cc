#include "tests/ops/op_fixture.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>

#include "framework/program.h"
#include "ops/grad.h"
#include "ops/infer_shapes.h"

namespace millrace::ops {
namespace {

const OpRegistry& known_ops() {
  static const std::unique_ptr<OpRegistry> kRegistry = standard_registry();
  return *kRegistry;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

VarSpec parse_var(llvm::StringRef text) {
  if (text == "?") return VarSpec::shapeless(VarKind::kLodTensor);
  const bool rows = text.consume_front("rows:");
  auto [shape, lod] = text.split('@');
  auto [dtype, list] = shape.split('[');
  Dims dims;
  llvm::SmallVector<llvm::StringRef, 8> parts;
  list.drop_back().split(parts, ',', -1, false);
  for (const llvm::StringRef part : parts) dims.push_back(std::stoll(part.str()));
  VarSpec spec = VarSpec::tensor(*parse_dtype({dtype.data(), dtype.size()}), dims);
  if (!lod.empty()) spec.lod_level = std::stoi(lod.str());
  if (rows) {
    spec.kind = VarKind::kSelectedRows;
    spec.form = TensorForm::kSelectedRows;
    spec.lod_level.reset();
  }
  return spec;
}

std::string print_var(const Var& var) {
  if (!var.spec().has_tensor()) return "?";
  std::vector<std::string> dims;
  for (const int64_t dim : var.dims()) dims.push_back(std::to_string(dim));
  return fmt::format("{}{}[{}]{}", var.kind() == VarKind::kSelectedRows ? "rows:" : "",
                     dtype_name(var.dtype()), llvm::join(dims, ","),
                     var.lod_level() > 0 ? "@" + std::to_string(var.lod_level()) : "");
}

// Declares the inputs and appends the op; outputs are declared without shape.
Op& build(Program& program, const std::string& type, const std::string& inputs,
          const std::string& outputs, const AttrList& attrs) {
  Block& block = program.root();
  Op& op = block.append_op(type);
  for (const std::string& word : words(inputs)) {
    const auto [slot, vars] = llvm::StringRef(word).split('=');
    llvm::SmallVector<llvm::StringRef, 4> parts;
    vars.split(parts, '+');
    std::vector<std::string> names;
    for (const llvm::StringRef part : parts) {
      names.push_back(slot.str() + std::to_string(names.size()));
      block.declare(names.back(), parse_var(part));
    }
    op.set_input(slot, names);
  }
  for (const std::string& word : words(outputs)) {
    const auto [slot, count] = llvm::StringRef(word).split('*');
    std::vector<std::string> names;
    for (int i = 0; i < (count.empty() ? 1 : std::stoi(count.str())); ++i) {
      names.push_back(slot.str() + "_out" + std::to_string(i));
      block.declare(names.back(), VarSpec::shapeless(VarKind::kLodTensor));
    }
    op.set_output(slot, names);
  }
  for (const auto& [name, value] : attrs) op.set_attr(name, value);
  return op;
}

std::string print_attr(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kFloat:
      return fmt::format("{}", value.float32());
    case AttrKind::kBool:
      return value.boolean() ? "true" : "false";
    case AttrKind::kStrings: {
      const std::vector<std::string> found(value.strings().begin(), value.strings().end());
      return "[" + llvm::join(found, ",") + "]";
    }
    default:
      return std::to_string(value.integer());
  }
}

std::string slots_with_counts(
    const std::vector<std::pair<std::string, std::vector<std::string>>>& slots) {
  std::vector<std::string> out;
  for (const auto& [slot, names] : slots) {
    if (names.empty()) continue;
    out.push_back(names.size() == 1 ? slot : slot + "*" + std::to_string(names.size()));
  }
  return llvm::join(out, " ");
}

std::string print_grad(const GradOp& op, bool with_attrs) {
  std::string out = fmt::format("{}({} -> {})", op.type, slots_with_counts(op.inputs),
                                slots_with_counts(op.outputs));
  if (!with_attrs) return out;
  for (const auto& [name, value] : op.attrs) out += " " + name + "=" + print_attr(value);
  return out;
}

// Cost without a program: only dims of inputs are requested.
class FlopsContext final : public InferContext {
 public:
  FlopsContext(const OpDef& def, const Op& op) : InferContext(def, op) {
    for (const Slot& slot : op.inputs()) {
      for (const Arg& arg : slot.args)
        metas_[arg.name] = meta_of(op.block().find_var(arg.name)->spec());
    }
  }

 protected:
  const VarMeta& meta(NameId name) const override { return metas_.find(name)->second; }
  void set_meta(NameId /*name*/, VarMeta /*meta*/) override {}

 private:
  llvm::DenseMap<NameId, VarMeta> metas_;
};

}  // namespace

std::string infer(const std::string& type, const std::string& inputs, const std::string& outputs,
                  const AttrList& attrs) {
  const auto program = Program::create();
  Op& op = build(*program, type, inputs, outputs, attrs);
  const Status status = infer_op(known_ops(), op);
  if (!status.ok()) return status.message();
  std::vector<std::string> out;
  for (const Slot& slot : op.outputs()) {
    std::vector<std::string> vars;
    for (const Arg& arg : slot.args) vars.push_back(print_var(*program->root().find_var(arg.name)));
    out.push_back(op.name_of(slot.name).str() + "=" + llvm::join(vars, "+"));
  }
  return llvm::join(out, " ");
}

std::string grad(const std::string& type, const std::string& inputs, const std::string& outputs,
                 const AttrList& attrs, const std::string& unwanted) {
  const auto program = Program::create();
  std::string declared;
  for (const std::string& word : words(inputs)) {
    const auto [slot, count] = llvm::StringRef(word).split('*');
    declared += slot.str() + "=f32[1]";
    for (int i = 1; i < (count.empty() ? 1 : std::stoi(count.str())); ++i) declared += "+f32[1]";
    declared += " ";
  }
  const Op& op = build(*program, type, declared, outputs, attrs);
  const std::vector<std::string> skipped = words(unwanted);
  const GradContext context(op, [&](llvm::StringRef name) {
    return std::none_of(skipped.begin(), skipped.end(),
                        [&](const std::string& slot) { return name == slot + "0"; });
  });
  const auto ops = make_grad_ops(known_ops(), context);
  if (!ops.ok()) return ops.status().message();
  std::vector<std::string> out;
  const bool with_attrs = known_ops().find(type)->grad_fn() != nullptr;
  for (const GradOp& grad_op : *ops) out.push_back(print_grad(grad_op, with_attrs));
  return llvm::join(out, "; ");
}

double flops(const std::string& type, const std::string& inputs, const AttrList& attrs) {
  const auto program = Program::create();
  const Op& op = build(*program, type, inputs, "", attrs);
  const OpDef* const def = known_ops().find(type);
  if (def == nullptr || def->flops_fn() == nullptr) return 0;
  return def->flops_fn()(FlopsContext(*def, op));
}

}  // namespace millrace::ops
