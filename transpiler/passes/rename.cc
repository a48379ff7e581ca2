#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace rename_parts {
namespace {

constexpr int64_t kMaxFileBytes = 64 << 20;

using Renaming = std::vector<std::pair<std::string, std::string>>;

Status add_pair(Renaming& renaming, llvm::StringRef from, llvm::StringRef to,
                const std::string& where) {
  if (from.empty() || to.empty())
    return InvalidArgument("{}: expected an old and a new name", where);
  renaming.emplace_back(from.str(), to.str());
  return Ok();
}

Status read_pairs(Renaming& renaming, const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileBytes));
  llvm::StringRef rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const auto [line, tail] = rest.split('\n');
    rest = tail;
    const llvm::StringRef content = line.trim();
    if (content.empty() || content.startswith("#")) continue;
    const auto [from, to] = content.split(' ');
    MILLRACE_RETURN_IF_ERROR(
        add_pair(renaming, from, to.trim(), fmt::format("{}, line {}", path, number)));
  }
  return Ok();
}

// Each old name occurs once, each new name occurs once, and no new name is already in use.
Status check(const Program& program, const Program* startup, const Renaming& renaming) {
  llvm::StringSet<> old_names;
  llvm::StringSet<> new_names;
  const auto known = [&](const std::string& name) {
    return is_known_var(program, name) || (startup != nullptr && is_known_var(*startup, name));
  };
  for (const auto& [from, to] : renaming) {
    if (!known(from)) return no_such_var(program, from, "map");
    if (!old_names.insert(from).second) return InvalidArgument("var '{}' is renamed twice", from);
    if (!new_names.insert(to).second) return InvalidArgument("two vars are renamed to '{}'", to);
  }
  for (const auto& [from, to] : renaming) {
    if (!old_names.contains(to) && known(to))
      return InvalidArgument("cannot rename '{}' to '{}': a var of that name exists", from, to);
  }
  return Ok();
}

// "w" and the var of "w:3" get their new names.
std::string renamed_text(const std::string& text, const llvm::StringMap<std::string>& names) {
  if (const auto it = names.find(text); it != names.end()) return it->second;
  const auto [var, number] = llvm::StringRef(text).rsplit(':');
  const auto it = number.empty() ? names.end() : names.find(var);
  return it == names.end() ? text : it->second + ":" + number.str();
}

void rename_in_attrs(Op& op, const llvm::StringMap<std::string>& names) {
  for (const Attr& attr : op.attrs().vec()) {
    const llvm::StringRef name = op.name_of(attr.name);
    const AttrKind kind = attr.value.kind();
    const bool list = kind == AttrKind::kStrings || kind == AttrKind::kVars;
    const bool single = kind == AttrKind::kString || kind == AttrKind::kVar;
    if (attr.missing_value || name == "op_callstack" || (!list && !single)) continue;
    AttrValue value;
    if (single) {
      std::string text = renamed_text(attr.value.string().str(), names);
      value = kind == AttrKind::kVar ? AttrValue::of_var(std::move(text))
                                     : AttrValue::of_string(std::move(text));
    } else {
      std::vector<std::string> texts;
      for (const std::string& text : attr.value.strings())
        texts.push_back(renamed_text(text, names));
      value = kind == AttrKind::kVars ? AttrValue::of_vars(std::move(texts))
                                      : AttrValue::of_strings(std::move(texts));
    }
    if (!(value == attr.value)) op.set_attr(name, std::move(value));
  }
}

// All names change at once, so two vars may swap theirs.
bool rename_all(Program& program, const Renaming& renaming) {
  llvm::StringMap<std::string> names;
  bool changed = false;
  for (const auto& [from, to] : renaming) {
    names[from] = to;
    changed |= from != to && is_known_var(program, from);
  }
  if (!changed) return false;
  const auto temporary = [](size_t i) { return std::string("\n") + std::to_string(i); };
  for (Block& block : program.blocks()) {
    for (size_t i = 0; i < renaming.size(); ++i) block.rename(renaming[i].first, temporary(i));
    for (size_t i = 0; i < renaming.size(); ++i) block.rename(temporary(i), renaming[i].second);
    for (Op& op : block.ops()) rename_in_attrs(op, names);
  }
  return true;
}

class Rename final : public Pass {
 public:
  explicit Rename(const PassOptions& options)
      : map_(options.strings("map")), file_(options.string("file")) {}

  llvm::StringRef name() const override { return "rename"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    Renaming renaming;
    for (const std::string& entry : map_) {
      const auto [from, to] = llvm::StringRef(entry).split(':');
      MILLRACE_RETURN_IF_ERROR(add_pair(renaming, from, to, "option 'map', '" + entry + "'"));
    }
    if (!file_.empty()) MILLRACE_RETURN_IF_ERROR(read_pairs(renaming, file_));
    MILLRACE_RETURN_IF_ERROR(check(program, context.startup, renaming));
    bool changed = rename_all(program, renaming);
    if (context.startup != nullptr) changed |= rename_all(*context.startup, renaming);
    return changed;
  }

 private:
  std::vector<std::string> map_;
  std::string file_;
};

}  // namespace
}  // namespace rename_parts

void add_passes_rename(PassRegistry& registry) {
  registry.add(
      PassInfo("rename", "rename vars, all at once, in every block and in the startup program")
          .strings("map", "old:new, split at the first colon")
          .string("file", "", "file with lines 'old new'; empty lines and lines with # are skipped")
          .makes<rename_parts::Rename>());
}

}  // namespace millrace::transpiler
