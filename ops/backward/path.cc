#include <algorithm>

#include "framework/names.h"
#include "ops/backward/pending.h"
#include "ops/registry.h"

namespace millrace::ops::backward {
namespace {

bool writes_one_of(const Op& op, const Names& names) {
  return llvm::any_of(op.output_names(),
                      [&](llvm::StringRef name) { return names.contains(name.str()); });
}

void add_inputs(const Op& op, const Names& no_grad, Names& needed) {
  for (const llvm::StringRef name : op.input_names()) {
    if (name != names::kEmpty && !no_grad.contains(name.str())) needed.insert(name.str());
  }
}

}  // namespace

StatusOr<OpPath> find_op_path(const OpRegistry& registry, Block& block, Names needed, Names no_grad,
                              bool is_loop) {
  const std::vector<Op*> ops = block.op_vector();
  std::vector<bool> on_path(ops.size(), false);
  // A value that a step leaves may be read by an op that stands before its writer in the next step.
  for (int round = 0; round < (is_loop ? 2 : 1); ++round) {
    for (size_t i = ops.size(); i-- > 0;) {
      if (on_path[i] || !writes_one_of(*ops[i], needed)) continue;
      const OpDef* const def = registry.find(ops[i]->type());
      if (def == nullptr) {
        return Status(StatusCode::kInvalidProgram, "unknown op type; it has no gradient")
            .at(ops[i]->location());
      }
      if (!def->has_grad()) continue;
      on_path[i] = true;
      add_inputs(*ops[i], no_grad, needed);
    }
  }
  OpPath path;
  path.no_grad = std::move(no_grad);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!on_path[i]) continue;
    path.ops.push_back(ops[i]);
    if (ops[i]->has_attr("sub_block")) continue;
    for (const llvm::StringRef name : ops[i]->output_names()) {
      if (!needed.contains(name.str())) path.no_grad.insert(name.str());
    }
  }
  return path;
}

}  // namespace millrace::ops::backward
