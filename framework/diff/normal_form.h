#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/diff/diff.h"
#include "framework/program.h"

/// The normal form in which programs are compared: differences that do not matter are removed.
namespace millrace::diff {

using Names = std::vector<llvm::StringRef>;

/// An op without empty slots and ignored attributes; slots and attributes are ordered by name.
struct NormalOp {
  int64_t index = 0;                                  ///< position in the block of the program
  llvm::StringRef type;                               ///< op type
  std::map<llvm::StringRef, Names> inputs;            ///< var names by slot
  std::map<llvm::StringRef, Names> outputs;           ///< the same
  std::map<llvm::StringRef, const AttrValue*> attrs;  ///< values, in the program
};

/// A block whose vars are ordered by name; ops keep their order.
struct NormalBlock {
  int32_t index = 0;                           ///< in the program
  int32_t parent = -1;                         ///< index of the parent block; -1: none
  int32_t forward = -1;                        ///< block that this one is the gradient of
  std::map<llvm::StringRef, const Var*> vars;  ///< by name after renaming
  std::vector<NormalOp> ops;                   ///< in program order
};

/// Refers to the program it was made from, which must outlive it.
class NormalForm {
 public:
  /// \param rename  var names to replace; may be empty
  NormalForm(const Program& program, const DiffOptions& options,
             const std::map<std::string, std::string>& rename);
  NormalForm(const NormalForm&) = delete;
  NormalForm& operator=(const NormalForm&) = delete;

  [[nodiscard]] const std::vector<NormalBlock>& blocks() const { return blocks_; }

 private:
  using Renames = std::map<llvm::StringRef, llvm::StringRef>;
  /// Stores a name that the program does not contain, for the lifetime of this object.
  llvm::StringRef keep(std::string name);
  /// New names of control vars, made from the op that writes each.
  [[nodiscard]] Renames control_names();
  /// Adds names for control vars that no op writes.
  void name_unwritten(Renames& names);
  /// Replaces names in ops and vars.
  /// \param sort_controls  orders the names of slots that hold control vars only
  void apply(const Renames& names, bool sort_controls);

  std::vector<NormalBlock> blocks_;  ///< one for each block of the program
  std::deque<std::string> kept_;     ///< texts of new names, at stable addresses
};

/// True for names of control vars, which transpilers number differently.
bool is_control_name(llvm::StringRef name);

/// A declaration with the facts that are compared: "f32(784, 200) persistable".
std::string var_facts(const Var& var, const DiffOptions& options, bool with_dims);

/// Text of an attribute value. Two values compare equal if and only if their texts are equal.
std::string comparable_attr(llvm::StringRef op, llvm::StringRef name, const AttrValue& value,
                            const DiffOptions& options);
/// True if leaving the attribute out means the same.
bool is_default_attr(llvm::StringRef op, llvm::StringRef name, const AttrValue& value);

}  // namespace millrace::diff
