#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/status.h"
#include "framework/types.h"

namespace millrace {
class Program;
}

/// What is in a program, as plain values, and edits of a copy. Reading and writing program files is
/// in framework/program_file.h. Free functions are pure and may be called from any thread.
namespace millrace::api {

using ProgramPtr = std::shared_ptr<const Program>;

/// Payload of an attribute of kind kScalar.
using ScalarData = std::variant<bool, int64_t, double, std::complex<double>>;

/// Payload of an attribute; which alternative belongs to which AttrKind:
/// bool: kBool; int64_t: kInt, kLong, kBlock; double: kFloat (rounded to f32), kFloat64;
/// string (any bytes): kString, kVar; and the lists of these the plural kinds. kScalar and kScalars
/// are a vector<ScalarData>, the former with one element.
using AttrPayload =
    std::variant<bool, int64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>, std::vector<ScalarData>>;

/// An attribute of an op.
struct AttrData {
  std::string name;
  AttrPayload value;
  /// Absent only in edits: the kind is then that of the attribute that the op has, else that of the
  /// op's schema, else the one that the payload suggests (kInt for numbers within 32 bits, kFloat).
  std::optional<AttrKind> kind = std::nullopt;
};

/// An input or output slot of an op with its vars in order.
struct SlotData {
  std::string name;
  std::vector<std::string> vars;
};

/// An op.
struct OpData {
  std::string type;
  std::vector<SlotData> inputs;   ///< in file order
  std::vector<SlotData> outputs;  ///< in file order
  std::vector<AttrData> attrs;    ///< those that the op sets, in file order
};

/// Declaration of a var in a block.
struct VarData {
  std::string name;
  VarKind kind = VarKind::kLodTensor;
  std::optional<DType> dtype = std::nullopt;  ///< absent: the var has no elements, such as a reader
  std::vector<int64_t> dims = {};             ///< -1: unknown until run time
  int32_t lod_level = 0;
  bool persistable = false;
  bool is_parameter = false;
  bool stop_gradient = false;
  bool need_check_feed = false;
};

/// A copy of a program that can be read and edited in place. What edits do not touch keeps its
/// bytes. Edits check only what they name; verify() checks the whole.
///
/// Ops have numbers that stay valid until the op is erased. Functions return kNotFound for a block,
/// op, slot, attribute or var that does not exist. Movable.
/// Thread-safety: concurrent readers, or one writer.
class ProgramEditor {
 public:
  using OpId = uint32_t;

  /// A program with an empty block 0, and a copy of a program.
  ProgramEditor();
  explicit ProgramEditor(const Program& program);
  ProgramEditor(ProgramEditor&&) noexcept;
  ProgramEditor& operator=(ProgramEditor&&) noexcept;
  ProgramEditor(const ProgramEditor&) = delete;
  ProgramEditor& operator=(const ProgramEditor&) = delete;
  ~ProgramEditor();

  /// The program as it is now. The same pointer until the next edit.
  [[nodiscard]] ProgramPtr program() const;
  /// Release that wrote the program, such as 1006001 for 1.6.1; absent if it does not say.
  [[nodiscard]] std::optional<int64_t> version() const;

  // ---- blocks; block 0 is the root
  [[nodiscard]] int block_count() const;
  /// Index of the enclosing block; -1 for the root.
  [[nodiscard]] StatusOr<int> parent(int block) const;
  /// Appends an empty block and returns its index. Errors: kNotFound for the parent.
  StatusOr<int> add_block(int parent);

  // ---- ops
  /// Ops of a block in execution order.
  [[nodiscard]] StatusOr<std::vector<OpId>> ops(int block) const;
  [[nodiscard]] StatusOr<OpData> op(OpId op) const;
  /// Type alone, which is cheaper than op().
  [[nodiscard]] StatusOr<std::string> op_type(OpId op) const;
  /// Block of the op, and its position there. Cost: linear in the ops of the block.
  [[nodiscard]] StatusOr<std::pair<int, int64_t>> place(OpId op) const;
  /// First frame of the user's code that created the op; empty if the program does not say.
  [[nodiscard]] StatusOr<std::string> source_line(OpId op) const;
  /// Inserts an op before another of the block; without `before` at the end. Errors: also
  /// kInvalidArgument for an empty type and for attributes as in set_attr(). Then nothing changes.
  StatusOr<OpId> insert_op(int block, const OpData& op, std::optional<OpId> before = std::nullopt);
  /// Removes an op; declarations of its vars stay.
  Status erase_op(OpId op);
  Status set_op_type(OpId op, const std::string& type);
  /// Sets the vars of a slot; a slot that the op does not have is added after the others.
  Status set_input(OpId op, const std::string& slot, const std::vector<std::string>& vars);
  Status set_output(OpId op, const std::string& slot, const std::vector<std::string>& vars);
  Status remove_input(OpId op, const std::string& slot);
  Status remove_output(OpId op, const std::string& slot);
  /// Sets an attribute. Errors: kInvalidArgument naming op and attribute for a payload that does
  /// not belong to the kind, an integer beyond the kind, or an f32 that is not finite though the
  /// value is.
  Status set_attr(OpId op, const AttrData& attr);
  Status remove_attr(OpId op, const std::string& name);

  // ---- vars
  /// Declarations of a block in file order.
  [[nodiscard]] StatusOr<std::vector<VarData>> vars(int block) const;
  /// The declaration that ops of a block see: of the block, or of the nearest enclosing one.
  [[nodiscard]] StatusOr<VarData> var(int block, const std::string& name) const;
  /// Declares a var, or changes its declaration. Errors: also kInvalidArgument for an empty name, a
  /// dim below -1, and elements for a kind that has none or the reverse.
  Status declare(int block, const VarData& var);
  /// Removes a declaration; ops that name the var stay as they are.
  Status erase_var(int block, const std::string& name);
  /// Renames a declaration, and every use by ops of the block and of blocks inside it that do not
  /// declare the old name again. Attributes are not changed. Errors: also kInvalidArgument if the
  /// new name is visible in one of these blocks or empty.
  Status rename_var(int block, const std::string& from, const std::string& to);

 private:
  struct Parts;
  PartsPtr<Parts> parts_;
};

/// What verify() checks and permits; docs/verifier.md.
struct VerifyOptions {
  bool lint = false;                 ///< also warn of style: unused vars, dead ops, missing roles
  bool allow_outside_paths = false;  ///< ops may name files by absolute paths and with ".."
  bool allow_network = true;         ///< ops that open sockets are accepted
  bool allow_old_forms = false;      ///< forms of older releases are warnings, not errors
};

/// One problem of a program.
struct ProblemFound {
  bool is_error = true;  ///< a program with an error must not be run; warnings may be ignored
  std::string rule;      ///< stable name of the rule, such as "undeclared-var"
  Status status;         ///< message, location, hint
};

/// All problems of a program, in program order; empty if there is none. Cost: linear.
std::vector<ProblemFound> verify(const Program& program, const VerifyOptions& options = {});

/// What counts as a difference; the flags of the tool diff-program.
struct CompareOptions {
  bool any_order = false;     ///< ops may be permuted unless accesses to one var swap
  bool semantic = false;      ///< any_order, and names of vars that ops create are ignored
  bool strict_attrs = false;  ///< an absent attribute differs from a default
  bool strict_types = false;  ///< int differs from long, ints from longs
  bool strict_vars = false;   ///< stop_gradient is compared
  std::vector<std::string> ignore_attrs = {};  ///< attributes that are not compared
};

/// One difference of two programs. a and b are the values there; empty if missing.
struct ProgramDifference {
  int block = -1;
  int64_t op_a = -1;  ///< index in the block; -1 if missing or not about an op
  int64_t op_b = -1;
  std::string op_type;
  std::string what;  ///< "input X", "attr axis", "var w", "op", "parent", ...
  std::string a;
  std::string b;
  std::string text;  ///< all of it in one line
};

/// All differences, ordered by block, vars by name, ops by index; empty if the programs are equal.
std::vector<ProgramDifference> compare(const Program& a, const Program& b,
                                       const CompareOptions& options = {});

/// What run_passes() returns.
struct PassesResult {
  ProgramPtr program;
  ProgramPtr startup;                ///< null if none was given
  std::vector<std::string> remarks;  ///< lines of the passes, such as "fc_0.w_0: 2 slices"
};

/// Runs a pipeline on copies of a program and its startup program, and verifies the result of each
/// pass. \param pipeline  "name,name{option=value}" (docs/passes.md) \param startup  may be null
/// Errors: kInvalidArgument with the column for a bad pipeline; kInvalidProgram if the program does
/// not verify; those of the passes, with their name.
StatusOr<PassesResult> run_passes(const Program& program, const std::string& pipeline,
                                  const Program* startup = nullptr);

/// Names of the passes that run_passes() knows, sorted.
std::vector<std::string> pass_names();
/// Types of all ops that have a schema, sorted.
std::vector<std::string> op_types();

/// Ways to show a program.
enum class ProgramView {
  kSummary,  ///< sizes and op types, for terminals
  kHtml,     ///< one page that needs no network
  kJson,     ///< schema millrace.program, version 1
  kDot,      ///< for graphviz
  kSvg,
};

/// A program as text of that form. \param name  of the program, for titles
std::string view_program(const Program& program, ProgramView view, const std::string& name = {});

}  // namespace millrace::api
