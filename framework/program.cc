#include "framework/program.h"

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

std::unique_ptr<Program> Program::clone() const {
  auto copy = std::make_unique<Program>();
  for (size_t i = 0; i < names_.size(); ++i)
    copy->names_.intern(names_.str(static_cast<NameId>(i)));
  for (const Block& block : blocks()) {
    Block& target = copy->add_block(block.parent());
    target.stated_index_ = block.stated_index_;
    target.forward_block_ = block.forward_block_;
    target.unknown_ = block.unknown_;
    for (const Var& var : block.vars()) {
      Var& added = target.add_declaration(var.name(), var.spec());
      Block::set_wire(added, var.wire());
    }
    for (const Op& op : block.ops())
      Block::set_wire(target.clone_with(nullptr, op, true), op.wire());
  }
  copy->has_version_ = has_version_;
  copy->version_ = version_;
  copy->has_op_versions_ = has_op_versions_;
  copy->op_versions_ = op_versions_;
  copy->unknown_ = unknown_;
  copy->source_ = source_;
  copy->pristine_ = pristine_;
  return copy;
}

}  // namespace millrace
