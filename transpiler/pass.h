#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"
#include "transpiler/pass_options.h"

namespace millrace::transpiler {

/// Facts that passes of one pipeline leave for later ones, by type. Each kind of fact is one struct
/// derived from Facts; a pipeline holds at most one of each.
struct Facts {
  virtual ~Facts() = default;
};

/// What a pass may use in addition to its program.
struct PassContext {
  explicit PassContext(const ops::OpRegistry& op_registry) : registry(op_registry) {}

  const ops::OpRegistry& registry;
  /// Startup program that belongs to the one being rewritten; null if there is none.
  Program* startup = nullptr;
  /// Facts of what the pipeline works on (DistributionJob, CollectivePlan); null if there are none.
  Facts* job = nullptr;
  /// Lines for the user, in order ("fc_0.w_0: 2 slices"); printed by the tools with -v.
  std::vector<std::string> remarks;
};

/// Number of edits of the program and of the startup program of the context so far; equal numbers
/// mean that neither was edited in between.
inline uint64_t count_edits(const Program& program, const PassContext& context) {
  return program.edits() + (context.startup == nullptr ? 0 : context.startup->edits());
}

/// One rewrite of a program. Stateless between runs; options are given when it is made.
class Pass {
 public:
  Pass() = default;
  virtual ~Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// Name in pipelines: lower-case words joined by dashes.
  [[nodiscard]] virtual llvm::StringRef name() const = 0;
  /// Rewrites the program.
  /// \returns whether the program, or the startup program of the context, changed. The pass manager
  /// detects a pass that changes one and returns false. Errors: with the location in the program;
  /// the pass manager adds the name of the pass. After an error the program is unspecified.
  virtual StatusOr<bool> run(Program& program, PassContext& context) = 0;
  /// True for passes that accept the forms of older releases in their input, which other passes
  /// would misread. Such a pass may leave some of these forms for the next one.
  [[nodiscard]] virtual bool takes_old_forms() const { return false; }
};

/// Makes a pass from its checked options. Errors: kInvalidArgument for constraints beyond the
/// types, such as two options that exclude each other; the registry adds the name of the pass.
using PassFactory = std::function<StatusOr<std::unique_ptr<Pass>>(const PassOptions&)>;

}  // namespace millrace::transpiler
