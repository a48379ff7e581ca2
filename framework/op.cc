#include "framework/op.h"

#include <algorithm>

#include "framework/block.h"
#include "framework/program.h"

namespace millrace {
namespace {

// Ops have few slots and attributes with short names, so comparing names is cheaper than hashing
// one.
const Slot* find_slot(const NameTable& names, llvm::ArrayRef<Slot> slots, llvm::StringRef name) {
  const auto* const it =
      llvm::find_if(slots, [&](const Slot& slot) { return names.str(slot.name) == name; });
  return it == slots.end() ? nullptr : it;
}

llvm::SmallVector<llvm::StringRef, 4> strings_of(const NameTable& names, const Slot* slot) {
  llvm::SmallVector<llvm::StringRef, 4> out;
  if (slot != nullptr) {
    for (const Arg& arg : slot->args) out.push_back(names.str(arg.name));
  }
  return out;
}

llvm::SmallVector<llvm::StringRef, 8> all_names(const NameTable& names,
                                                llvm::ArrayRef<Slot> slots) {
  llvm::SmallVector<llvm::StringRef, 8> out;
  for (const Slot& slot : slots) {
    for (const Arg& arg : slot.args) out.push_back(names.str(arg.name));
  }
  return out;
}

bool mentions(const NameTable& names, llvm::ArrayRef<Slot> slots, llvm::StringRef name) {
  const std::optional<NameId> id = names.find(name);
  return id && llvm::any_of(slots, [&](const Slot& slot) {
           return llvm::any_of(slot.args, [&](const Arg& arg) { return arg.name == *id; });
         });
}

}  // namespace

Program& Op::program() const {
  return block_->program();
}
llvm::StringRef Op::type() const {
  return name_of(type_);
}
llvm::StringRef Op::name_of(NameId id) const {
  return program().names().str(id);
}

void Op::touch() {
  wire_ = {};
  block_->touch();
}

void Op::set_type(llvm::StringRef type) {
  type_ = program().names().intern(type);
  touch();
}

const Slot* Op::find_input(llvm::StringRef slot) const {
  return find_slot(program().names(), inputs_, slot);
}
const Slot* Op::find_output(llvm::StringRef slot) const {
  return find_slot(program().names(), outputs_, slot);
}

llvm::SmallVector<llvm::StringRef, 4> Op::input(llvm::StringRef slot) const {
  return strings_of(program().names(), find_input(slot));
}
llvm::SmallVector<llvm::StringRef, 4> Op::output(llvm::StringRef slot) const {
  return strings_of(program().names(), find_output(slot));
}

llvm::StringRef Op::first_input(llvm::StringRef slot) const {
  const Slot* const found = find_input(slot);
  return found == nullptr || found->args.empty() ? llvm::StringRef() : name_of(found->args[0].name);
}
llvm::StringRef Op::first_output(llvm::StringRef slot) const {
  const Slot* const found = find_output(slot);
  return found == nullptr || found->args.empty() ? llvm::StringRef() : name_of(found->args[0].name);
}

llvm::SmallVector<llvm::StringRef, 8> Op::input_names() const {
  return all_names(program().names(), inputs_);
}
llvm::SmallVector<llvm::StringRef, 8> Op::output_names() const {
  return all_names(program().names(), outputs_);
}
bool Op::reads(llvm::StringRef name) const {
  return mentions(program().names(), inputs_, name);
}
bool Op::writes(llvm::StringRef name) const {
  return mentions(program().names(), outputs_, name);
}

Op& Op::set_slot(bool is_output, llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names) {
  NameTable& table = program().names();
  const NameId id = table.intern(slot);
  block_->unlink_slot_uses(*this, is_output);
  auto set = [&](auto& slots) {
    auto* it = llvm::find_if(slots, [&](const Slot& s) { return s.name == id; });
    if (it == slots.end()) {
      slots.push_back(Slot{id, {}});
      it = &slots.back();
    }
    it->args.clear();
    for (const llvm::StringRef name : names) it->args.push_back(Arg{table.intern(name)});
  };
  if (is_output) {
    set(outputs_);
  } else {
    set(inputs_);
  }
  block_->link_uses(*this);
  touch();
  return *this;
}

Op& Op::set_input(llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names) {
  return set_slot(false, slot, names);
}
Op& Op::set_output(llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names) {
  return set_slot(true, slot, names);
}
Op& Op::set_input(llvm::StringRef slot, llvm::ArrayRef<std::string> names) {
  return set_slot(false, slot, llvm::SmallVector<llvm::StringRef, 8>(names.begin(), names.end()));
}
Op& Op::set_output(llvm::StringRef slot, llvm::ArrayRef<std::string> names) {
  return set_slot(true, slot, llvm::SmallVector<llvm::StringRef, 8>(names.begin(), names.end()));
}

void Op::remove_slot(bool is_output, llvm::StringRef slot) {
  const std::optional<NameId> id = program().names().find(slot);
  if (!id) return;
  block_->unlink_slot_uses(*this, is_output);
  const auto named = [&](const Slot& s) { return s.name == *id; };
  if (is_output) {
    llvm::erase_if(outputs_, named);
  } else {
    llvm::erase_if(inputs_, named);
  }
  block_->link_uses(*this);
  touch();
}

void Op::remove_input(llvm::StringRef slot) {
  remove_slot(/*is_output=*/false, slot);
}
void Op::remove_output(llvm::StringRef slot) {
  remove_slot(/*is_output=*/true, slot);
}

void Op::add_slot(bool is_output, llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names) {
  NameTable& table = program().names();
  Slot added{table.intern(slot), {}};
  for (const llvm::StringRef name : names) added.args.push_back(Arg{table.intern(name)});
  // Link only the new slot: an op of a hostile file may have millions of slots.
  if (is_output) {
    outputs_.push_back(std::move(added));
    block_->link_slot(*this, /*is_output=*/true, static_cast<uint32_t>(outputs_.size() - 1));
  } else {
    inputs_.push_back(std::move(added));
    block_->link_slot(*this, /*is_output=*/false, static_cast<uint32_t>(inputs_.size() - 1));
  }
  touch();
}

bool Op::replace_arg(bool is_output, llvm::StringRef from, llvm::StringRef to) {
  if (is_output ? !writes(from) : !reads(from)) return false;
  const NameId old_id = *program().names().find(from);
  const NameId new_id = program().names().intern(to);
  block_->unlink_slot_uses(*this, is_output);
  auto replace = [&](auto& slots) {
    for (Slot& slot : slots) {
      for (Arg& arg : slot.args) {
        if (arg.name == old_id) arg.name = new_id;
      }
    }
  };
  if (is_output) {
    replace(outputs_);
  } else {
    replace(inputs_);
  }
  block_->link_uses(*this);
  touch();
  return true;
}

bool Op::replace_input(llvm::StringRef from, llvm::StringRef to) {
  return replace_arg(/*is_output=*/false, from, to);
}
bool Op::replace_output(llvm::StringRef from, llvm::StringRef to) {
  return replace_arg(/*is_output=*/true, from, to);
}

// The attribute list for an edit. Afterwards it is not shared with other ops.
std::vector<Attr>& Op::own_attrs() {
  // Reserve room for attributes that are usually added, so that the vector need not double its
  // size.
  if (attrs_ == nullptr) {
    attrs_ = std::make_shared<std::vector<Attr>>();
    attrs_->reserve(4);
  } else if (attrs_.use_count() > 1) {
    auto own = std::make_shared<std::vector<Attr>>();
    own->reserve(attrs_->size() + 2);
    own->assign(attrs_->begin(), attrs_->end());
    attrs_ = std::move(own);
  }
  return *attrs_;
}

const AttrValue* Op::find_attr(llvm::StringRef name) const {
  const NameTable& names = program().names();
  for (const Attr& attr : attrs()) {
    if (names.str(attr.name) == name) return &attr.value;
  }
  return nullptr;
}

Op& Op::set_attr(llvm::StringRef name, AttrValue value) {
  const NameId id = program().names().intern(name);
  std::vector<Attr>& attrs = own_attrs();
  const auto it = llvm::find_if(attrs, [&](const Attr& attr) { return attr.name == id; });
  if (it == attrs.end()) {
    attrs.push_back(Attr{id, std::move(value), false, nullptr});
  } else {
    it->value = std::move(value);
    it->missing_value = false;
  }
  touch();
  return *this;
}

void Op::remove_attr(llvm::StringRef name) {
  const std::optional<NameId> id = program().names().find(name);
  const auto named = [&](const Attr& attr) { return id && attr.name == *id; };
  if (llvm::none_of(attrs(), named)) return;
  llvm::erase_if(own_attrs(), named);
  touch();
}

void Op::add_attr(Attr attr) {
  own_attrs().push_back(std::move(attr));
  touch();
}

void Op::set_is_target(std::optional<bool> value) {
  is_target_ = value;
  touch();
}

void Op::set_unknown(std::shared_ptr<const std::string> bytes) {
  unknown_ = std::move(bytes);
  touch();
}

bool Op::comes_before(const Op& other) const {
  return order_ < other.order_;
}

Location Op::location() const {
  Location location;
  location.block = block_->index();
  location.op = block_->index_of(*this);
  location.op_type = type().str();
  location.source = source_line(*this);
  return location;
}

std::string source_line(const Op& op) {
  const AttrValue* const stack = op.find_attr("op_callstack");
  if (stack == nullptr || stack->kind() != AttrKind::kStrings) return {};
  // The stack is innermost last in old files and innermost first in later ones. Frames of the
  // framework itself are recognized by their folders. A frame is a "File ..." line followed by the
  // source text.
  std::string fallback;
  for (const llvm::StringRef line : stack->strings()) {
    if (!line.trim().startswith("File ")) continue;
    const llvm::StringRef frame = line.trim().split('\n').first;
    if (fallback.empty()) fallback = frame.str();
    const bool in_framework = frame.contains("site-packages/paddle") ||
                              frame.contains("dist-packages/paddle") ||
                              frame.contains("paddle/fluid/") || frame.contains("paddle/base/");
    if (!in_framework) return frame.str();
  }
  return fallback;
}

}  // namespace millrace
