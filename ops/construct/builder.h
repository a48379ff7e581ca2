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

/// Values of attribute op_role that builders set; bits may be combined.
enum OpRole : int32_t {
  kRoleForward = 0,
  kRoleBackward = 1,
  kRoleOptimize = 2,
  kRoleLrSched = 16,
  kRoleLoss = 256,
};

/// An op to be appended: type, slots, attributes.
using NewOp = GradOp;

/// Attributes that a builder sets on every op that it appends.
struct OpMarks {
  int32_t role = kRoleForward;         ///< op_role, of the main program only
  std::vector<std::string> role_vars;  ///< op_role_var, of the main program only
  std::string scope = "/";             ///< op_namescope
  std::string device;                  ///< op_device
  std::vector<std::string> callstack;  ///< op_callstack; empty: none
};

/// Builds a main program and its startup program the way the original's front end does: ops have
/// all default attributes, role, name scope and device; names are generated; shapes are inferred;
/// outputs of an op without an input that has a gradient get stop_gradient. The two programs must
/// outlive the builder.
///
/// Thread-safety: none.
class Builder {
 public:
  /// Appends to what the two programs contain; does not generate names that they declare.
  Builder(const OpRegistry& registry, Program& main, Program& startup);

  [[nodiscard]] const OpRegistry& registry() const { return registry_; }
  [[nodiscard]] Program& main() const { return main_; }
  [[nodiscard]] Program& startup() const { return startup_; }
  [[nodiscard]] UniqueNames& names() { return names_; }
  [[nodiscard]] NameScopes& scopes() { return scopes_; }
  [[nodiscard]] OpMarks& marks() { return marks_; }

  /// The block of the main program that append() appends to; block 0 at first.
  [[nodiscard]] Block& block() const { return main_.block(static_cast<size_t>(current_)); }
  /// Adds a child of the current block and makes it the current one. leave_block() returns to the
  /// parent.
  Block& enter_block();
  void leave_block();

  /// Appends an op to the current block. Its outputs must be declared; inference sets their shapes.
  /// Errors: kInvalidProgram with the op's location if inference fails, kInvalidArgument for an
  /// attribute value that the schema does not permit.
  StatusOr<Op*> append(const NewOp& op);
  /// Inserts an op before all others of block 0. Errors: as append().
  StatusOr<Op*> prepend(const NewOp& op);
  /// Appends an op to block 0 of the startup program. Errors: as append().
  StatusOr<Op*> append_startup(const NewOp& op);

  // ---- vars of the current block; each returns the name
  /// A result of a layer, "<kind>_<n>.tmp_<m>". The op that writes it sets its shape.
  std::string layer_var(llvm::StringRef kind, DType dtype = DType::kFloat32);
  /// A var named "<key>_<n>".
  std::string numbered_var(llvm::StringRef key, VarSpec spec);
  /// Declares a persistable var in block 0 of both programs and appends an op to the startup
  /// program that fills it with a value. An existing declaration in the main program is kept.
  Status persistent_var(const std::string& name, DType dtype, llvm::ArrayRef<int64_t> dims,
                        double value, bool force_cpu = false);
  /// Sets stop_gradient on a var of the block; does nothing if the block does not declare it.
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

/// Sets other marks for the ops that are appended during its lifetime; its destructor restores the
/// old ones.
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
  /// Opens a name scope inside the current one.
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

/// The shortest text that reads back as the same number, in the form of attribute str_value:
/// "0.05", "1.0", "1e-05".
std::string number_text(double value);

}  // namespace millrace::ops
