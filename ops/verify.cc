#include "ops/verify.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/names.h"
#include "ops/verify_context.h"

namespace millrace::ops {
namespace verify {
namespace {

std::vector<std::optional<NameId>> ids_of(const NameTable& names, llvm::ArrayRef<SlotDef> slots) {
  std::vector<std::optional<NameId>> ids;
  ids.reserve(slots.size());
  for (const SlotDef& slot : slots) ids.push_back(names.find(slot.name));
  return ids;
}

// Walks the tree of blocks depth first and keeps context.visible up to date for the current block.
class BlockWalk {
 public:
  explicit BlockWalk(Context& context)
      : context_(context), children_(context.program.block_count()) {
    for (const Block& block : context.program.blocks()) {
      if (block.parent() >= 0) children_[block.parent()].push_back(block.index());
    }
  }

  void run() {
    std::vector<Frame> stack;
    stack.push_back(enter(0));
    while (!stack.empty()) {
      Frame& top = stack.back();
      const auto& children = children_[top.block];
      if (top.next_child < children.size()) {
        const int32_t child = children[top.next_child++];
        stack.push_back(enter(child));
      } else {
        leave(top);
        stack.pop_back();
      }
    }
  }

 private:
  struct Frame {
    int32_t block = 0;
    size_t next_child = 0;
    std::vector<std::pair<NameId, const Var*>> hidden;
    bool outer_has_forward = false;
  };

  Frame enter(int32_t index) {
    const Block& block = context_.program.block(index);
    Frame frame{index, 0, {}, context_.has_forward_blocks};
    if (block.forward_block().value_or(0) > 0) context_.has_forward_blocks = true;
    frame.hidden.reserve(block.var_count());
    for (const Var& var : block.vars()) {
      const Var*& slot = context_.visible[static_cast<uint32_t>(var.id())];
      if (slot != nullptr && &slot->block() == &block) continue;  // declared twice: keep the first
      frame.hidden.emplace_back(var.id(), slot);
      slot = &var;
    }
    check_ops(block);
    return frame;
  }

  void leave(const Frame& frame) {
    context_.has_forward_blocks = frame.outer_has_forward;
    for (const auto& [name, var] : frame.hidden)
      context_.visible[static_cast<uint32_t>(name)] = var;
  }

  void check_ops(const Block& block) {
    int64_t index = 0;
    for (const Op& op : block.ops()) {
      const OpView view{op, index++, context_.type_of(op)};
      check_slots(context_, view);
      check_attrs(context_, view);
      check_roles(context_, view);
      check_capability(context_, view);
    }
  }

  Context& context_;
  std::vector<std::vector<int32_t>> children_;
};

}  // namespace

Context::Context(const OpRegistry& op_registry, const Program& checked,
                 const VerifyOptions& verify_options)
    : registry(op_registry),
      program(checked),
      options(verify_options),
      findings(verify_options.max_findings),
      marks(checked.names().size()),
      visible(checked.names().size()),
      reachable(checked.block_count()),
      empty_name(checked.names().find(names::kEmpty)),
      role_name(checked.names().find("op_role")),
      role_var_name(checked.names().find("op_role_var")),
      types_(checked.names().size()) {
  for (const AttrDef& attr : registry.common_attrs()) {
    if (const auto id = checked.names().find(attr.name)) common_[*id] = &attr;
  }
}

const TypeInfo& Context::type_of(const Op& op) {
  std::unique_ptr<TypeInfo>& info = types_[static_cast<uint32_t>(op.type_id())];
  if (info != nullptr) return *info;
  info = std::make_unique<TypeInfo>();
  info->def = registry.find(op.type());
  if (info->def == nullptr) {
    // No suggestions for very long names: they are not typing errors, and the cost of the edit
    // distance is quadratic in the length.
    if (op.type().size() <= 64) info->suggestion = registry.suggest(op.type());
    return *info;
  }
  const OpDef& def = *info->def;
  info->is_gradient = def.forward() != nullptr || def.type().endswith("_grad");
  info->dtype_rule = find_dtype_rule(def.type());
  info->input_ids = ids_of(program.names(), def.inputs());
  info->output_ids = ids_of(program.names(), def.outputs());
  for (const AttrDef& attr : def.attrs()) {
    if (const auto id = program.names().find(attr.name)) info->attrs.try_emplace(*id, &attr);
  }
  return *info;
}

Location Context::place(const OpView& view) {
  Location where;
  where.block = view.op.block().index();
  where.op = view.index;
  where.op_type = view.op.type().str();
  where.source = source_line(view.op);
  return where;
}

void Context::error(const OpView& view, std::string_view rule, Status status, Location where) {
  faulty.insert(&view.op);
  findings.error(rule, std::move(status).at(std::move(where)));
}

bool Context::counted(const OpView& view) {
  if (!findings.full()) return false;
  faulty.insert(&view.op);
  findings.count_only(Severity::kError);
  return true;
}

void Context::warning(const OpView& /*view*/, std::string_view rule, Status status,
                      Location where) {
  findings.warning(rule, std::move(status).at(std::move(where)));
}

}  // namespace verify

std::vector<Finding> verify_program(const OpRegistry& registry, const Program& program,
                                    const VerifyOptions& options) {
  verify::Context context(registry, program, options);
  const StructureFacts facts = verify_structure(program, options.limits, context.findings);
  if (!facts.is_tree) return context.findings.take();
  verify::find_reachable(context);
  verify::BlockWalk(context).run();
  verify::check_feed_fetch(context);
  if (options.check_shapes && facts.shapes_are_sane) verify::check_inference(context);
  if (options.lint) verify::check_lint(context);
  return context.findings.take();
}

Status check_program(const OpRegistry& registry, const Program& program,
                     const VerifyOptions& options) {
  return to_status(verify_program(registry, program, options));
}

}  // namespace millrace::ops
