#include "framework/block.h"

#include <algorithm>
#include <cassert>

#include "framework/program.h"

namespace millrace {
namespace {

// Distance between the order numbers of neighbours: an insertion takes the middle of its gap, and
// the block is renumbered only when a gap is used up.
constexpr uint64_t kOrderGap = uint64_t{1} << 32U;

}  // namespace

Block::~Block() {
  ops_.clearAndDispose([](Op* op) { delete op; });
  vars_.clearAndDispose([](Var* var) { delete var; });
}

void Block::touch() {
  program_->touch();
}

void Block::set_parent(int32_t parent) {
  parent_ = parent;
  touch();
}

void Block::set_stated_index(int32_t index) {
  stated_index_ = index;
  touch();
}

void Block::set_forward_block(std::optional<int32_t> index) {
  forward_block_ = index;
  touch();
}

void Block::set_unknown(std::shared_ptr<const std::string> bytes) {
  unknown_ = std::move(bytes);
  touch();
}

Op* Block::next(const Op& op) const {
  auto it = std::next(const_cast<Op&>(op).getIterator());
  return it == const_cast<OpList&>(ops_).end() ? nullptr : &*it;
}

Op* Block::previous(const Op& op) const {
  auto it = const_cast<Op&>(op).getIterator();
  return it == const_cast<OpList&>(ops_).begin() ? nullptr : &*std::prev(it);
}

std::vector<Op*> Block::op_vector() {
  std::vector<Op*> out;
  out.reserve(op_count_);
  for (Op& op : ops_) out.push_back(&op);
  return out;
}

int64_t Block::index_of(const Op& op) const {
  int64_t index = 0;
  for (const Op& other : ops_) {
    if (&other == &op) return index;
    ++index;
  }
  return -1;
}

void Block::renumber() {
  uint64_t order = 0;
  for (Op& op : ops_) op.order_ = (order += kOrderGap);
}

void Block::assign_order(Op& op) {
  const Op* const before = previous(op);
  const Op* const after = next(op);
  const uint64_t low = before == nullptr ? 0 : before->order_;
  if (after == nullptr) {
    op.order_ = low + kOrderGap;
    return;
  }
  op.order_ = low + (after->order_ - low) / 2;
  if (op.order_ == low) renumber();
}

Op& Block::insert(OpList::iterator where, std::unique_ptr<Op> op) {
  Op& inserted = *op.release();
  ops_.insert(where, inserted);
  ++op_count_;
  assign_order(inserted);
  link_uses(inserted);
  touch();
  return inserted;
}

Op& Block::insert_before(Op* where, llvm::StringRef type) {
  auto position = where == nullptr ? ops_.end() : where->getIterator();
  return insert(position, std::unique_ptr<Op>(new Op(this, program_->names().intern(type))));
}

Op& Block::insert_after(Op& where, llvm::StringRef type) {
  return insert_before(next(where), type);
}

Op& Block::clone_before(Op* where, const Op& other) {
  return clone_with(where, other, &program_->names() == &other.program().names());
}

Op& Block::clone_with(Op* where, const Op& other, bool same_ids) {
  NameTable& names = program_->names();
  const NameTable& from = other.program().names();
  auto translate = [&](NameId id) { return same_ids ? id : names.intern(from.str(id)); };
  std::unique_ptr<Op> op(new Op(this, translate(other.type_)));
  auto copy_slots = [&](const auto& source, auto& target) {
    target.reserve(source.size());
    for (const Slot& slot : source) {
      Slot& copy = target.emplace_back(Slot{translate(slot.name), {}});
      copy.args.reserve(slot.args.size());
      for (const Arg& arg : slot.args) copy.args.push_back(Arg{translate(arg.name)});
    }
  };
  copy_slots(other.inputs_, op->inputs_);
  copy_slots(other.outputs_, op->outputs_);
  if (same_ids || other.attrs().empty()) {
    op->attrs_ = other.attrs_;
  } else {
    op->attrs_ = std::make_shared<std::vector<Attr>>(*other.attrs_);
    for (Attr& attr : *op->attrs_) attr.name = translate(attr.name);
  }
  op->is_target_ = other.is_target_;
  op->unknown_ = other.unknown_;
  return insert(where == nullptr ? ops_.end() : where->getIterator(), std::move(op));
}

void Block::erase(Op& op) {
  unlink_uses(op);
  ops_.remove(op);
  --op_count_;
  delete &op;
  touch();
}

// ---- vars

Var* Block::find_var(NameId id) const {
  return var_index_.lookup(id);
}

Var* Block::find_var(llvm::StringRef name) const {
  const std::optional<NameId> id = program_->names().find(name);
  return id ? find_var(*id) : nullptr;
}

Var* Block::find_var_recursive(llvm::StringRef name) const {
  const std::optional<NameId> id = program_->names().find(name);
  if (!id) return nullptr;
  const Block* block = this;
  // In a valid program a parent's index is smaller; the counter ends the loop in an invalid one.
  for (size_t steps = 0; steps <= program_->block_count(); ++steps) {
    if (Var* const var = block->find_var(*id)) return var;
    const int32_t parent = block->parent_;
    if (parent < 0 || static_cast<size_t>(parent) >= program_->block_count()) return nullptr;
    block = &program_->block(parent);
  }
  return nullptr;
}

Var& Block::add_declaration(llvm::StringRef name, VarSpec spec) {
  const NameId id = program_->names().intern(name);
  Var* const var = new Var(this, id, std::move(spec));
  vars_.push_back(*var);
  ++var_count_;
  var_index_.try_emplace(id, var);
  touch();
  return *var;
}

Var& Block::declare(llvm::StringRef name, VarSpec spec) {
  if (Var* const var = find_var(program_->names().intern(name))) {
    var->set_spec(std::move(spec));
    return *var;
  }
  return add_declaration(name, std::move(spec));
}

void Block::erase(Var& var) {
  const auto it = var_index_.find(var.name_);
  if (it != var_index_.end() && it->second == &var) var_index_.erase(it);
  vars_.remove(var);
  --var_count_;
  delete &var;
  touch();
}

void Block::rename(llvm::StringRef from, llvm::StringRef to) {
  if (from == to) return;
  const std::string old_name = from.str();  // `from` may point into a name that changes here
  if (Var* const var = find_var(old_name)) {
    var_index_.erase(var->name_);
    var->name_ = program_->names().intern(to);
    var_index_.try_emplace(var->name_, var);
    var->touch();
  }
  for (Op* const op : readers_of(old_name)) op->replace_input(old_name, to);
  for (Op* const op : writers_of(old_name)) op->replace_output(old_name, to);
}

// ---- readers and writers

void Block::link_slot(Op& op, bool is_output, uint32_t slot) {
  if (!is_indexed_) return;
  auto& args = is_output ? op.outputs_[slot].args : op.inputs_[slot].args;
  for (uint32_t a = 0; a < args.size(); ++a) {
    Arg& arg = args[a];
    if (arg.use_position != 0) continue;  // already linked
    const auto [it, added] = use_index_.try_emplace(arg.name, static_cast<uint32_t>(uses_.size()));
    if (added) uses_.emplace_back();
    UseList& uses = is_output ? uses_[it->second].writes : uses_[it->second].reads;
    uses.push_back(Use{&op, slot, a});
    arg.use_position = static_cast<uint32_t>(uses.size());  // position + 1
  }
}

void Block::link_uses(Op& op) {
  if (!is_indexed_) return;
  for (uint32_t s = 0; s < op.inputs_.size(); ++s) link_slot(op, /*is_output=*/false, s);
  for (uint32_t s = 0; s < op.outputs_.size(); ++s) link_slot(op, /*is_output=*/true, s);
}

void Block::unlink_slot_uses(Op& op, bool is_output) {
  if (!is_indexed_) return;
  const auto list = is_output ? &Uses::writes : &Uses::reads;
  auto unlink = [&](auto& slots) {
    for (Slot& slot : slots) {
      for (Arg& arg : slot.args) {
        const auto it = use_index_.find(arg.name);
        assert(it != use_index_.end());
        UseList& uses = uses_[it->second].*list;
        const uint32_t position = arg.use_position - 1;
        // The last use moves into the gap, so its argument must store the new position.
        uses[position] = uses.back();
        uses.pop_back();
        if (position < uses.size()) {
          const Use& moved = uses[position];
          Slot& moved_slot =
              is_output ? moved.op->outputs_[moved.slot] : moved.op->inputs_[moved.slot];
          moved_slot.args[moved.arg].use_position = position + 1;
        }
        arg.use_position = 0;
      }
    }
  };
  if (is_output) {
    unlink(op.outputs_);
  } else {
    unlink(op.inputs_);
  }
}

void Block::unlink_uses(Op& op) {
  unlink_slot_uses(op, /*is_output=*/false);
  unlink_slot_uses(op, /*is_output=*/true);
}

void Block::index_uses() {
  is_indexed_ = true;
  const size_t names = std::min(program_->names().size(), 2 * op_count_);
  use_index_.reserve(static_cast<unsigned>(names));
  uses_.reserve(names);
  for (Op& op : ops_) link_uses(op);
}

const Block::Uses* Block::uses_of(llvm::StringRef name) const {
  const std::optional<NameId> id = program_->names().find(name);
  if (!id) return nullptr;
  std::call_once(index_once_, [&] { const_cast<Block*>(this)->index_uses(); });
  const auto it = use_index_.find(*id);
  return it == use_index_.end() ? nullptr : &uses_[it->second];
}

llvm::SmallVector<Op*, 4> Block::ordered(const UseList& uses) {
  llvm::SmallVector<Op*, 4> out;
  for (const Use& use : uses) out.push_back(use.op);
  llvm::sort(out, [](const Op* a, const Op* b) { return a->comes_before(*b); });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

llvm::SmallVector<Op*, 4> Block::readers_of(llvm::StringRef name) const {
  const Uses* const uses = uses_of(name);
  return uses == nullptr ? llvm::SmallVector<Op*, 4>() : ordered(uses->reads);
}

llvm::SmallVector<Op*, 4> Block::writers_of(llvm::StringRef name) const {
  const Uses* const uses = uses_of(name);
  return uses == nullptr ? llvm::SmallVector<Op*, 4>() : ordered(uses->writes);
}

bool Block::has_readers(llvm::StringRef name) const {
  const Uses* const uses = uses_of(name);
  return uses != nullptr && !uses->reads.empty();
}

bool Block::has_writers(llvm::StringRef name) const {
  const Uses* const uses = uses_of(name);
  return uses != nullptr && !uses->writes.empty();
}

Op* Block::first_writer(llvm::StringRef name) const {
  const Uses* const uses = uses_of(name);
  Op* best = nullptr;
  if (uses != nullptr) {
    for (const Use& use : uses->writes) {
      if (best == nullptr || use.op->comes_before(*best)) best = use.op;
    }
  }
  return best;
}

Op* Block::last_writer(llvm::StringRef name) const {
  const Uses* const uses = uses_of(name);
  Op* best = nullptr;
  if (uses != nullptr) {
    for (const Use& use : uses->writes) {
      if (best == nullptr || best->comes_before(*use.op)) best = use.op;
    }
  }
  return best;
}

}  // namespace millrace
