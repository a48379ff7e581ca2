#include "tests/ops/one_op.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/grad.h"
#include "ops/infer_shapes.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

const OpRegistry& all_ops() {
  static const std::unique_ptr<OpRegistry> kRegistry = standard_registry();
  return *kRegistry;
}

std::string slots_with_vars(std::vector<std::pair<std::string, std::vector<std::string>>> slots) {
  std::sort(slots.begin(), slots.end());
  std::vector<std::string> parts;
  for (const auto& [slot, names] : slots) {
    if (!names.empty()) parts.push_back(fmt::format("{}={}", slot, fmt::join(names, ",")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

OneOp::OneOp(llvm::StringRef type)
    : program_(Program::create()), op_(&program_->root().append_op(type)) {}

void OneOp::add(bool is_output, llvm::StringRef slot, VarSpec spec) {
  auto names = is_output ? op_->output(slot) : op_->input(slot);
  const std::string name = slot.str() + std::to_string(names.size());
  program_->root().declare(name, std::move(spec));
  names.push_back(name);
  if (is_output) {
    op_->set_output(slot, llvm::ArrayRef<llvm::StringRef>(names));
    outputs_.push_back(name);
  } else {
    op_->set_input(slot, llvm::ArrayRef<llvm::StringRef>(names));
  }
}

OneOp& OneOp::in(llvm::StringRef slot, const Dims& dims, DType dtype, int32_t lod_level) {
  VarSpec spec = VarSpec::tensor(dtype, dims);
  spec.lod_level = lod_level;
  add(false, slot, std::move(spec));
  return *this;
}

OneOp& OneOp::in_unknown(llvm::StringRef slot) {
  add(false, slot, VarSpec::shapeless(VarKind::kLodTensor));
  return *this;
}

OneOp& OneOp::out(llvm::StringRef slot, int count) {
  for (int i = 0; i < count; ++i) add(true, slot, VarSpec::shapeless(VarKind::kLodTensor));
  return *this;
}

std::string OneOp::infer() {
  const Status status = infer_op(all_ops(), *op_);
  if (!status.ok()) return "error: " + std::string(status.message());
  std::vector<std::string> parts;
  for (const std::string& name : outputs_) {
    const Var& var = *program_->root().find_var(name);
    if (!var.spec().has_tensor()) {
      parts.push_back(name + " ?");
      continue;
    }
    const int32_t lod = var.spec().lod_level.value_or(0);
    parts.push_back(fmt::format("{} {}{}{}", name, dtype_name(var.dtype()), dims_text(var.dims()),
                                lod == 0 ? "" : fmt::format(" lod{}", lod)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string OneOp::grad(const std::vector<std::string>& no_grad) {
  const GradContext context(*op_, [&](llvm::StringRef name) {
    return std::find(no_grad.begin(), no_grad.end(), name.str()) == no_grad.end();
  });
  auto ops = make_grad_ops(all_ops(), context);
  if (!ops.ok()) return "error: " + std::string(ops.status().message());
  std::vector<std::string> parts;
  for (const GradOp& op : ops.value()) {
    parts.push_back(fmt::format("{}({} -> {})", op.type, slots_with_vars(op.inputs),
                                slots_with_vars(op.outputs)));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

OneOp x_out(llvm::StringRef type, const Dims& dims) {
  OneOp op(type);
  op.in("X", dims).out("Out");
  return op;
}

}  // namespace millrace::ops
