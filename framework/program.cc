#include "framework/program.h"

#include <cassert>

namespace millrace {

std::unique_ptr<Program> Program::create() {
  auto program = std::make_unique<Program>();
  program->add_block(-1);
  return program;
}

Block& Program::add_block(int32_t parent) {
  blocks_.push_back(
      std::unique_ptr<Block>(new Block(this, static_cast<int32_t>(blocks_.size()), parent)));
  touch();
  return *blocks_.back();
}

void Program::truncate_blocks(size_t count) {
  if (count >= blocks_.size()) return;
  blocks_.resize(count);
  touch();
}

namespace {

// Updates the block attributes of an op to the new block indices.
void renumber_block_attrs(Op& op, llvm::ArrayRef<int32_t> new_index) {
  const auto renumbered = [&](int64_t index) {
    const bool valid = index >= 0 && static_cast<size_t>(index) < new_index.size();
    return valid ? new_index[static_cast<size_t>(index)] : static_cast<int32_t>(index);
  };
  std::vector<std::pair<NameId, AttrValue>> changes;
  for (const Attr& attr : op.attrs()) {
    if (attr.missing_value) continue;
    if (attr.value.kind() == AttrKind::kBlock) {
      AttrValue value = AttrValue::of_block(renumbered(attr.value.integer()));
      if (!(value == attr.value)) changes.emplace_back(attr.name, std::move(value));
    } else if (attr.value.kind() == AttrKind::kBlocks) {
      std::vector<int32_t> blocks;
      for (const int32_t index : attr.value.ints()) blocks.push_back(renumbered(index));
      AttrValue value = AttrValue::of_blocks(std::move(blocks));
      if (!(value == attr.value)) changes.emplace_back(attr.name, std::move(value));
    }
  }
  for (auto& [name, value] : changes) op.set_attr(op.name_of(name), std::move(value));
}

}  // namespace

void Program::retain_blocks(llvm::ArrayRef<bool> keep) {
  assert(keep.size() == blocks_.size() && keep.front());
  std::vector<int32_t> new_index(blocks_.size(), -1);
  std::vector<std::unique_ptr<Block>> kept;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!keep[i]) continue;
    new_index[i] = static_cast<int32_t>(kept.size());
    kept.push_back(std::move(blocks_[i]));
  }
  if (kept.size() == blocks_.size()) {
    blocks_ = std::move(kept);
    return;
  }
  const auto renumbered = [&](int32_t index) {
    const bool valid = index >= 0 && static_cast<size_t>(index) < new_index.size();
    return valid ? new_index[static_cast<size_t>(index)] : index;
  };
  blocks_ = std::move(kept);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = *blocks_[i];
    block.index_ = block.stated_index_ = static_cast<int32_t>(i);
    block.parent_ = renumbered(block.parent_);
    if (block.forward_block_) block.forward_block_ = renumbered(*block.forward_block_);
    for (Op& op : block.ops()) renumber_block_attrs(op, new_index);
  }
  touch();
}

void Program::set_version(bool present, std::optional<int64_t> version) {
  has_version_ = present;
  version_ = version;
  touch();
}

void Program::set_op_versions(bool present, std::vector<OpVersion> versions) {
  has_op_versions_ = present;
  op_versions_ = std::move(versions);
  touch();
}

void Program::set_unknown(std::shared_ptr<const std::string> bytes) {
  unknown_ = std::move(bytes);
  touch();
}

void Program::set_source(std::shared_ptr<const std::string> bytes) {
  source_ = std::move(bytes);
  pristine_ = source_ != nullptr;
}

void Program::copy_blocks(const Program& from, bool same_ids) {
  for (const Block& block : from.blocks()) {
    Block& target = add_block(block.parent());
    target.stated_index_ = block.stated_index_;
    target.forward_block_ = block.forward_block_;
    target.unknown_ = block.unknown_;
    for (const Var& var : block.vars()) {
      Var& added = target.add_declaration(var.name(), var.spec());
      Block::set_wire(added, var.wire());
    }
    for (const Op& op : block.ops())
      Block::set_wire(target.clone_with(nullptr, op, same_ids), op.wire());
  }
  has_version_ = from.has_version_;
  version_ = from.version_;
  has_op_versions_ = from.has_op_versions_;
  op_versions_ = from.op_versions_;
  unknown_ = from.unknown_;
  source_ = from.source_;
}

std::unique_ptr<Program> Program::clone() const {
  auto copy = std::make_unique<Program>();
  copy->names_.copy_from(names_);
  copy->copy_blocks(*this, /*same_ids=*/true);
  copy->pristine_ = pristine_;
  return copy;
}

void Program::replace_with(const Program& other) {
  blocks_.clear();
  copy_blocks(other, /*same_ids=*/false);
  touch();
}

}  // namespace millrace
