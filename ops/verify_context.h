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

/// Shared state of the verifier; internal to ops/verify*.cc.
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
  const DtypeRule* dtype_rule = nullptr;  ///< null: no rule about element types
  std::string suggestion;                 ///< most similar known type, if the type is unknown
};

/// The op that is being checked, with its position.
struct OpView {
  const Op& op;
  int64_t index;  ///< in its block
  const TypeInfo& type;
};

/// A set of names with a value each. Lookup and next_round(), which clears it, are O(1).
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
  /// The current block, or an enclosing one, is a gradient block with a forward block.
  bool has_forward_blocks = false;
  /// Blocks that the run can reach from block 0; by index.
  std::vector<bool> reachable;
  /// Ops with errors, on which inference must not run.
  llvm::DenseSet<const Op*> faulty;
  /// Ids of reserved names, if the program uses them.
  std::optional<NameId> empty_name;     ///< @EMPTY@
  std::optional<NameId> role_name;      ///< op_role
  std::optional<NameId> role_var_name;  ///< op_role_var

  const TypeInfo& type_of(const Op& op);
  [[nodiscard]] bool is_placeholder(NameId name) const { return empty_name && name == *empty_name; }
  [[nodiscard]] const AttrDef* find_common(NameId attr) const { return common_.lookup(attr); }

  /// Location of the op. The caller adds slot, attr or var.
  static Location place(const OpView& view);
  /// Reports an error (warning) of the op; errors mark the op as faulty.
  void error(const OpView& view, std::string_view rule, Status status, Location where);
  void warning(const OpView& view, std::string_view rule, Status status, Location where);
  /// Returns true if no more findings are kept. It then counts one error of the op, and the caller
  /// need not build a message.
  bool counted(const OpView& view);

 private:
  std::vector<std::unique_ptr<TypeInfo>> types_;  ///< by NameId of the type
  llvm::DenseMap<NameId, const AttrDef*> common_;
};

/// View of a name for fmt.
inline std::string_view text(llvm::StringRef s) {
  return {s.data(), s.size()};
}

/// Checks of one op. context.visible must hold the declarations visible in its block.
void check_slots(Context& context, const OpView& view);
void check_attrs(Context& context, const OpView& view);
void check_roles(Context& context, const OpView& view);
void check_capability(Context& context, const OpView& view);

/// The rule about the element types of an op's inputs; null if there is none.
const DtypeRule* find_dtype_rule(llvm::StringRef type);
Status check_dtypes(const DtypeRule& rule, const InferContext& ctx);

/// Checks over all blocks. find_reachable() also checks which op owns which block.
void find_reachable(Context& context);
void check_feed_fetch(Context& context);
void check_inference(Context& context);
void check_lint(Context& context);

}  // namespace millrace::ops::verify
