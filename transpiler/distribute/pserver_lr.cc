#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/pserver_builder.h"

namespace millrace::transpiler {
namespace {

// Deep nesting in a hostile program must not overflow the stack.
constexpr int kMaxDepth = 256;

Status copy_sub_block(PserverBuilder& b, Op& copy, const Op& op, const Block& parent, int depth);

// Copies an op of a sub-block. Every var it uses is declared in the copied block, as the original
// does, unless the sub-block itself declares it.
Status copy_inner_op(PserverBuilder& b, Block& block, const Op& op, int depth) {
  auto declare = [&](llvm::StringRef name) -> Status {
    if (block.find_var(name) != nullptr) return Ok();
    const Var* const var = op.block().find_var_recursive(name);
    if (var == nullptr) {
      return InvalidProgram("'{}' is not declared", std::string_view(name.data(), name.size()))
          .at(op.location());
    }
    block.declare(name, server_spec(*var));
    return Ok();
  };
  for (const llvm::StringRef name : op.input_names()) MILLRACE_RETURN_IF_ERROR(declare(name));
  for (const llvm::StringRef name : op.output_names()) MILLRACE_RETURN_IF_ERROR(declare(name));
  Op& copy = block.append_clone(op);
  copy.set_string("op_namescope", "/");
  copy.remove_attr("op_callstack");
  return copy_sub_block(b, copy, op, block, depth);
}

// Gives a copied op a copy of its sub-block.
Status copy_sub_block(PserverBuilder& b, Op& copy, const Op& op, const Block& parent, int depth) {
  const AttrValue* const attr = op.find_attr("sub_block");
  if (attr == nullptr || attr->kind() != AttrKind::kBlock) return Ok();
  const int64_t index = attr->integer();
  if (index <= 0 || static_cast<size_t>(index) >= b.origin.block_count() || depth >= kMaxDepth) {
    return InvalidProgram("attribute 'sub_block' is {} (expected a block in 1..{})", index,
                          b.origin.block_count() - 1)
        .at(op.location());
  }
  const Block& inner = b.origin.block(static_cast<size_t>(index));
  Block& target = b.program->add_block(parent.index());
  for (const Var& var : inner.vars()) target.declare(var.name(), var.spec());
  copy.set_attr("sub_block", AttrValue::of_block(target.index()));
  for (const Op& inner_op : inner.ops())
    MILLRACE_RETURN_IF_ERROR(copy_inner_op(b, target, inner_op, depth + 1));
  return Ok();
}

}  // namespace

Status build_lr_block(PserverBuilder& b) {
  Block* block = nullptr;
  for (const Op* const op : b.job.lr_ops) {
    if (block == nullptr) {
      block = &b.program->add_block(0);
      b.lr_block = block->index();
      b.optimize_blocks.push_back(b.lr_block);
    }
    bool sliced = false;
    MILLRACE_ASSIGN_OR_RETURN(Op* const copy, b.copy_op(*block, *op, sliced));
    MILLRACE_RETURN_IF_ERROR(copy_sub_block(b, *copy, *op, *block, 0));
  }
  return Ok();
}

}  // namespace millrace::transpiler
