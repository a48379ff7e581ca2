#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/construct/name_scopes.h"
#include "ops/construct/unique_names.h"
#include "ops/grad.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Values of attribute op_role that builders set; bits may be joined.
enum OpRole : int32_t {
  kRoleForward = 0,
  kRoleBackward = 1,
  kRoleOptimize = 2,
  kRoleLrSched = 16,
  kRoleLoss = 256,
};

/// An op to be appended: type, slots, attributes.
using NewOp = GradOp;

/// What every op that a builder appends is marked with.
struct OpMarks {
  int32_t role = kRoleForward;         ///< op_role, of the main program only
  std::vector<std::string> role_vars;  ///< op_role_var, of the main program only
  std::string scope = "/";             ///< op_namescope
  std::string device;                  ///< op_device
  std::vector<std::string> callstack;  ///< op_callstack; empty: none
};

/// Writes a main program and its startup program the way the original's front end does: ops with
/// all default attributes, role, name scope and device; generated names; inferred shapes;
/// gradients stopped where no input has one. The two programs must outlive the builder.
///
/// Thread-safety: none.
class Builder {
 public:
  /// Goes on behind what the two programs have; names that they declare are not generated again.
  Builder(const OpRegistry& registry, Program& main, Program& startup);

  [[nodiscard]] const OpRegistry& registry() const { return registry_; }
  [[nodiscard]] Program& main() const { return main_; }
  [[nodiscard]] Program& startup() const { return startup_; }
  [[nodiscard]] UniqueNames& names() { return names_; }
  [[nodiscard]] NameScopes& scopes() { return scopes_; }
  [[nodiscard]] OpMarks& marks() { return marks_; }

  /// The block of the main program that ops go to; block 0 at first.
  [[nodiscard]] Block& block() const { return main_.block(static_cast<size_t>(current_)); }
  /// Adds a block inside the current one and makes it the current one; leave_block() goes back.
  Block& enter_block();
  void leave_block();

  /// Appends an op to the current block; its outputs must be declared and get their shapes.
  /// Errors: kInvalidProgram with the op's place if inference fails, kInvalidArgument for an
  /// attribute out of its range.
  StatusOr<Op*> append(const NewOp& op);
  /// Puts an op in front of all others of block 0.
  StatusOr<Op*> prepend(const NewOp& op);
  /// Appends an op to block 0 of the startup program.
  StatusOr<Op*> append_startup(const NewOp& op);

  // ---- vars of the current block; each returns the name
  /// A result of a layer: "<kind>_<n>.tmp_<m>", its shape from the op that writes it.
  std::string layer_var(llvm::StringRef kind, DType dtype = DType::kFloat32);
  /// A var named "<key>_<n>".
  std::string numbered_var(llvm::StringRef key, VarSpec spec);
  /// A persistable var of block 0 of both programs that the startup program fills with a value.
  /// Whoever declares one that exists gets the old declaration of the main program.
  Status persistent_var(const std::string& name, DType dtype, llvm::ArrayRef<int64_t> dims,
                        double value, bool force_cpu = false);
  /// Marks a var as one that no gradient flows through.
  static void stop_gradient(Block& block, llvm::StringRef name);

 private:
  StatusOr<Op*> finish(Op& op, const NewOp& from, bool is_main);

  const OpRegistry& registry_;
  Program& main_;
  Program& startup_;
  UniqueNames names_;
  NameScopes scopes_;
  OpMarks marks_;
  int32_t current_ = 0;
};

/// Puts other marks on the ops of a scope of C++ and the old ones back at its end.
class MarkScope {
 public:
  explicit MarkScope(Builder& builder) : builder_(builder), old_(builder.marks()) {}
  MarkScope(const MarkScope&) = delete;
  MarkScope& operator=(const MarkScope&) = delete;
  ~MarkScope() { builder_.marks() = std::move(old_); }

  MarkScope& role(int32_t role, std::vector<std::string> role_vars = {}) {
    builder_.marks().role = role;
    builder_.marks().role_vars = std::move(role_vars);
    return *this;
  }
  /// Opens a name scope inside the present one.
  MarkScope& scope(const std::string& prefix) {
    builder_.marks().scope = builder_.scopes().open(builder_.marks().scope, prefix);
    return *this;
  }
  MarkScope& device(std::string device) {
    builder_.marks().device = std::move(device);
    return *this;
  }

 private:
  Builder& builder_;
  OpMarks old_;
};

/// "0.05", "1.0", "1e-05": the shortest text that reads back to the number, as attribute str_value
/// has it.
std::string number_text(double value);

}  // namespace millrace::ops
