#include "api/program.h"

#include <unordered_map>
#include <utility>

#include "api/program_data.h"
#include "framework/base/errors.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::api {

struct ProgramEditor::Parts {
  std::unique_ptr<Program> program;
  std::unique_ptr<ops::OpRegistry> registry;  ///< made when an attribute is set first
  std::vector<Op*> ops;                       ///< by number; null: erased
  std::unordered_map<const Op*, OpId> numbers;
  ProgramPtr last;          ///< what program() returned
  uint64_t last_edits = 0;  ///< Program::edits() then

  StatusOr<Block*> block(int index) const {
    if (index >= 0 && static_cast<size_t>(index) < program->block_count())
      return &program->block(static_cast<size_t>(index));
    return NotFound("the program has no block {}: it has {}", index, program->block_count());
  }
  StatusOr<Op*> op(OpId number) const {
    if (number < ops.size() && ops[number] != nullptr) return ops[number];
    return NotFound("the program has no op with number {}", number);
  }
  OpId add(Op& op) {
    const auto number = static_cast<OpId>(ops.size());
    ops.push_back(&op);
    numbers.emplace(&op, number);
    return number;
  }
  const ops::OpRegistry& schemas() {
    if (registry == nullptr) registry = ops::standard_registry();
    return *registry;
  }
};

ProgramEditor::ProgramEditor() : parts_(std::make_unique<Parts>()) {
  parts_->program = Program::create();
}
ProgramEditor::ProgramEditor(const Program& program) : parts_(std::make_unique<Parts>()) {
  parts_->program = program.clone();
  for (Block& block : parts_->program->blocks())
    for (Op& op : block.ops()) parts_->add(op);
}
ProgramEditor::ProgramEditor(ProgramEditor&&) noexcept = default;
ProgramEditor& ProgramEditor::operator=(ProgramEditor&&) noexcept = default;
ProgramEditor::~ProgramEditor() = default;

ProgramPtr ProgramEditor::program() const {
  if (parts_->last == nullptr || parts_->last_edits != parts_->program->edits()) {
    parts_->last = parts_->program->clone();
    parts_->last_edits = parts_->program->edits();
  }
  return parts_->last;
}

std::optional<int64_t> ProgramEditor::version() const {
  return parts_->program->version();
}

// ---- blocks

int ProgramEditor::block_count() const {
  return static_cast<int>(parts_->program->block_count());
}

StatusOr<int> ProgramEditor::parent(int block) const {
  MILLRACE_ASSIGN_OR_RETURN(const Block* const found, parts_->block(block));
  return found->parent();
}

StatusOr<int> ProgramEditor::add_block(int parent) {
  MILLRACE_RETURN_IF_ERROR(parts_->block(parent).status());
  const int index = parts_->program->add_block(parent).index();
  parts_->program->touch();
  return index;
}

// ---- ops

StatusOr<std::vector<ProgramEditor::OpId>> ProgramEditor::ops(int block) const {
  MILLRACE_ASSIGN_OR_RETURN(const Block* const found, parts_->block(block));
  std::vector<OpId> numbers;
  for (const Op& op : found->ops()) numbers.push_back(parts_->numbers.at(&op));
  return numbers;
}

StatusOr<OpData> ProgramEditor::op(OpId op) const {
  MILLRACE_ASSIGN_OR_RETURN(const Op* const found, parts_->op(op));
  return data_of(*found);
}

StatusOr<std::string> ProgramEditor::op_type(OpId op) const {
  MILLRACE_ASSIGN_OR_RETURN(const Op* const found, parts_->op(op));
  return found->type().str();
}

StatusOr<std::pair<int, int64_t>> ProgramEditor::place(OpId op) const {
  MILLRACE_ASSIGN_OR_RETURN(const Op* const found, parts_->op(op));
  const Block& block = found->block();
  return std::pair<int, int64_t>(block.index(), block.index_of(*found));
}

StatusOr<std::string> ProgramEditor::source_line(OpId op) const {
  MILLRACE_ASSIGN_OR_RETURN(const Op* const found, parts_->op(op));
  return millrace::source_line(*found);
}

StatusOr<ProgramEditor::OpId> ProgramEditor::insert_op(int block, const OpData& op,
                                                       std::optional<OpId> before) {
  MILLRACE_ASSIGN_OR_RETURN(Block* const target, parts_->block(block));
  Op* where = nullptr;
  if (before) {
    MILLRACE_ASSIGN_OR_RETURN(where, parts_->op(*before));
    if (&where->block() != target)
      return NotFound("block {} has no op with number {}", block, *before);
  }
  if (op.type.empty())
    return InvalidArgument("type of the op: expected a name, found an empty one");
  Op& added = target->insert_before(where, op.type);
  for (const SlotData& slot : op.inputs)
    added.set_input(slot.name, llvm::ArrayRef<std::string>(slot.vars));
  for (const SlotData& slot : op.outputs)
    added.set_output(slot.name, llvm::ArrayRef<std::string>(slot.vars));
  for (const AttrData& attr : op.attrs) {
    StatusOr<AttrValue> value = value_of(attr, added, parts_->schemas());
    if (!value.ok()) {
      target->erase(added);
      return std::move(value).status();
    }
    added.set_attr(attr.name, *std::move(value));
  }
  return parts_->add(added);
}

Status ProgramEditor::erase_op(OpId op) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  parts_->numbers.erase(found);
  parts_->ops[op] = nullptr;
  found->block().erase(*found);
  return Ok();
}

Status ProgramEditor::set_op_type(OpId op, const std::string& type) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  if (type.empty()) return InvalidArgument("type of the op: expected a name, found an empty one");
  found->set_type(type);
  return Ok();
}

Status ProgramEditor::set_input(OpId op, const std::string& slot,
                                const std::vector<std::string>& vars) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  found->set_input(slot, llvm::ArrayRef<std::string>(vars));
  return Ok();
}

Status ProgramEditor::set_output(OpId op, const std::string& slot,
                                 const std::vector<std::string>& vars) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  found->set_output(slot, llvm::ArrayRef<std::string>(vars));
  return Ok();
}

Status ProgramEditor::remove_input(OpId op, const std::string& slot) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  if (found->find_input(slot) == nullptr)
    return NotFound("op {} has no input {}", found->type().str(), slot);
  found->remove_input(slot);
  return Ok();
}

Status ProgramEditor::remove_output(OpId op, const std::string& slot) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  if (found->find_output(slot) == nullptr)
    return NotFound("op {} has no output {}", found->type().str(), slot);
  found->remove_output(slot);
  return Ok();
}

Status ProgramEditor::set_attr(OpId op, const AttrData& attr) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  MILLRACE_ASSIGN_OR_RETURN(AttrValue value, value_of(attr, *found, parts_->schemas()));
  found->set_attr(attr.name, std::move(value));
  return Ok();
}

Status ProgramEditor::remove_attr(OpId op, const std::string& name) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const found, parts_->op(op));
  if (!found->has_attr(name))
    return NotFound("op {} does not set the attribute {}", found->type().str(), name);
  found->remove_attr(name);
  return Ok();
}

// ---- vars

StatusOr<std::vector<VarData>> ProgramEditor::vars(int block) const {
  MILLRACE_ASSIGN_OR_RETURN(const Block* const found, parts_->block(block));
  std::vector<VarData> vars;
  for (const Var& var : found->vars()) vars.push_back(data_of(var));
  return vars;
}

StatusOr<VarData> ProgramEditor::var(int block, const std::string& name) const {
  MILLRACE_ASSIGN_OR_RETURN(const Block* const found, parts_->block(block));
  const Var* const var = found->find_var_recursive(name);
  if (var == nullptr) return NotFound("block {} sees no var '{}'", block, name);
  return data_of(*var);
}

Status ProgramEditor::declare(int block, const VarData& var) {
  MILLRACE_ASSIGN_OR_RETURN(Block* const found, parts_->block(block));
  const Var* const present = found->find_var(var.name);
  MILLRACE_ASSIGN_OR_RETURN(VarSpec spec,
                            spec_of(var, present == nullptr ? nullptr : &present->spec()));
  found->declare(var.name, std::move(spec));
  return Ok();
}

Status ProgramEditor::erase_var(int block, const std::string& name) {
  MILLRACE_ASSIGN_OR_RETURN(Block* const found, parts_->block(block));
  Var* const var = found->find_var(name);
  if (var == nullptr) return NotFound("block {} does not declare '{}'", block, name);
  found->erase(*var);
  return Ok();
}

Status ProgramEditor::rename_var(int block, const std::string& from, const std::string& to) {
  MILLRACE_ASSIGN_OR_RETURN(Block* const found, parts_->block(block));
  if (found->find_var(from) == nullptr)
    return NotFound("block {} does not declare '{}'", block, from);
  if (to.empty())
    return InvalidArgument("new name of the var: expected a name, found an empty one");
  // Blocks that see the declaration: this one, and those inside it that do not declare it again.
  std::vector<Block*> seeing = {found};
  for (Block& other : parts_->program->blocks()) {
    for (size_t i = 0; i < seeing.size(); ++i) {
      if (other.parent() == seeing[i]->index() && other.index() > block &&
          other.find_var(from) == nullptr) {
        seeing.push_back(&other);
        break;
      }
    }
  }
  for (const Block* const other : seeing)
    if (other->find_var_recursive(to) != nullptr)
      return InvalidArgument("block {} sees a var '{}' already", other->index(), to);
  for (Block* const other : seeing) other->rename(from, to);
  return Ok();
}

}  // namespace millrace::api
