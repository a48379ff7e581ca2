#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>

#include "ops/verify.h"

/// Shared state of the parts of the verifier; for ops/verify*.cc only.
namespace millrace::ops::verify {

struct DtypeRule;

/// A def with its slots and attributes keyed by the names of one program.
struct TypeInfo {
  const OpDef* def = nullptr;  ///< null: the type is unknown
  bool is_gradient = false;
  /// Ids of def->inputs() and def->outputs() in order; nullopt for a name the program never uses.
  std::vector<std::optional<NameId>> input_ids;
  std::vector<std::optional<NameId>> output_ids;
  llvm::DenseMap<NameId, const AttrDef*> attrs;
  const DtypeRule* dtype_rule = nullptr;  ///< null: nothing is said about element types
  std::string suggestion;                 ///< nearest known type, for an unknown one
};

/// One op under examination, with its place.
struct OpView {
  const Op& op;
  int64_t index;  ///< in its block
  const TypeInfo& type;
};

/// Stamp per name: says in O(1) whether a name was met in the current round, and where.
class NameMarks {
 public:
  explicit NameMarks(size_t names) : marks_(names) {}
  void next_round() { ++round_; }
  /// Marks the name with a value; returns the value of the first mark of this round, or -1.
  int32_t mark(NameId name, int32_t value) {
    Mark& mark = marks_[static_cast<uint32_t>(name)];
    if (mark.round == round_) return mark.value;
    mark = Mark{round_, value};
    return -1;
  }
  [[nodiscard]] int32_t value(NameId name) const {
    const Mark& mark = marks_[static_cast<uint32_t>(name)];
    return mark.round == round_ ? mark.value : -1;
  }

 private:
  struct Mark {
    uint64_t round = 0;
    int32_t value = 0;
  };
  std::vector<Mark> marks_;
  uint64_t round_ = 0;
};

/// Program, schemas, options and findings of one verification.
class Context {
 public:
  Context(const OpRegistry& registry, const Program& program, const VerifyOptions& options);

  const OpRegistry& registry;
  const Program& program;
  const VerifyOptions& options;
  FindingList findings;
  NameMarks marks;
  /// Innermost visible declaration of each name at the block being walked; null: none.
  std::vector<const Var*> visible;
  /// The block at hand, or one around it, is a gradient block with a forward block.
  bool has_forward_blocks = false;
  /// Blocks that the run can reach from block 0; by index.
  std::vector<bool> reachable;
  /// Ops with errors, which inference must not see.
  llvm::DenseSet<const Op*> faulty;
  /// Ids of reserved names, if the program uses them.
  std::optional<NameId> empty_name;     ///< @EMPTY@
  std::optional<NameId> role_name;      ///< op_role
  std::optional<NameId> role_var_name;  ///< op_role_var

  const TypeInfo& type_of(const Op& op);
  [[nodiscard]] bool is_placeholder(NameId name) const { return empty_name && name == *empty_name; }
  [[nodiscard]] const AttrDef* find_common(NameId attr) const { return common_.lookup(attr); }

  /// Place of the op, with slot, attr or var to be filled in by the caller.
  static Location place(const OpView& view);
  /// Reports an error (warning) of the op; errors mark the op as faulty.
  void error(const OpView& view, std::string_view rule, Status status, Location where);
  void warning(const OpView& view, std::string_view rule, Status status, Location where);
  /// True if the report is full; then only counts an error of the op, and the caller is done.
  bool counted(const OpView& view);

 private:
  std::vector<std::unique_ptr<TypeInfo>> types_;  ///< by NameId of the type
  llvm::DenseMap<NameId, const AttrDef*> common_;
};

/// View of a name as the formatter takes it.
inline std::string_view text(llvm::StringRef s) {
  return {s.data(), s.size()};
}

/// Checks that need one op at a time; the block's declarations are in context.visible.
void check_slots(Context& context, const OpView& view);
void check_attrs(Context& context, const OpView& view);
void check_roles(Context& context, const OpView& view);
void check_capability(Context& context, const OpView& view);

/// What an op type says about the element types of its inputs; null: nothing.
const DtypeRule* find_dtype_rule(llvm::StringRef type);
Status check_dtypes(const DtypeRule& rule, const InferContext& ctx);

/// Checks over all blocks. find_reachable() also checks which op owns which block.
void find_reachable(Context& context);
void check_feed_fetch(Context& context);
void check_inference(Context& context);
void check_lint(Context& context);

}  // namespace millrace::ops::verify
