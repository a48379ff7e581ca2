#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/pass.h"
#include "transpiler/pass_registry.h"
#include "transpiler/pipeline.h"

namespace millrace::transpiler {

/// What an instrumentation is given about one pass of a running pipeline.
struct PassEvent {
  llvm::StringRef pass;
  size_t index = 0;  ///< position in the pipeline, from 0
  size_t count = 0;  ///< passes in the pipeline
  const Program& program;
  const Program* startup = nullptr;  ///< null if there is none
  bool changed = false;              ///< result of the pass; false before it ran
};

struct PipelineReport;

/// Observes a pipeline; instrumentation.h has the available ones. An error stops the run.
class PassInstrumentation {
 public:
  PassInstrumentation() = default;
  virtual ~PassInstrumentation() = default;
  PassInstrumentation(const PassInstrumentation&) = delete;
  PassInstrumentation& operator=(const PassInstrumentation&) = delete;

  /// Called first, before the input is verified.
  virtual Status begin(const Pipeline& pipeline);
  virtual Status before(const PassEvent& event);
  virtual Status after(const PassEvent& event);
  /// The program may be half rewritten; the status has its notes.
  virtual void failed(const PassEvent& event, const Status& status);
  /// Called last, if no pass failed.
  virtual void finished(const PipelineReport& report);
};

/// What the note on an error of a pass names.
enum class ErrorNote {
  kPipeline,  ///< "in pass 'x' (1 of 2) of '<pipeline>'"
  kPass,      ///< "in pass 'x'": the caller composed the pipeline, its user knows nothing of it
  kNothing,   ///< no note: the pass is the whole command
};

/// How a pipeline runs.
struct PassManagerOptions {
  /// Checks a program; empty: no checks. It runs on the input, where a finding is an error of the
  /// input, and after each pass that changed something, where it is an error of the pass
  /// (kInternal).
  std::function<Status(const Program&)> verify;
  /// The same check for the input and output of passes with takes_old_forms(); empty: verify.
  std::function<Status(const Program&)> verify_old_forms;
  /// Compares fingerprints before and after each pass; a change that a pass does not report is
  /// kInternal.
  bool check_changes = true;
  ErrorNote error_note = ErrorNote::kPipeline;
  /// Called in order; not owned.
  std::vector<PassInstrumentation*> instrumentations;
};

/// What one pass did.
struct PassRecord {
  std::string pass;
  bool changed = false;
  size_t ops_before = 0;  ///< of all blocks of the main program
  size_t ops_after = 0;
  double run_ms = 0;    ///< the pass itself
  double check_ms = 0;  ///< verifying, fingerprints and instrumentations
};

/// What a pipeline did, in the order of its passes.
struct PipelineReport {
  std::vector<PassRecord> passes;
  [[nodiscard]] bool changed() const;
  /// One line per pass and one for the total, with aligned columns.
  [[nodiscard]] std::string table() const;
};

/// The passes of one pipeline, ready to run on any number of programs.
/// Thread-safety: runs of one manager on different programs may overlap if their options do not
/// share instrumentations.
class PassManager {
 public:
  /// Creates all passes. Errors: those of PassRegistry::make(), before anything has run.
  static StatusOr<PassManager> create(const PassRegistry& registry, Pipeline pipeline);
  /// As above, from text. Errors: also those of parse_pipeline().
  static StatusOr<PassManager> create(const PassRegistry& registry, llvm::StringRef pipeline);
  /// A pipeline of one pass with state that has no text form.
  static PassManager of(std::unique_ptr<Pass> pass);

  [[nodiscard]] const Pipeline& pipeline() const { return pipeline_; }

  /// Runs the passes in order and stops at the first error; then the program is unspecified.
  ///
  /// Errors: those of the passes, with a note on the pass (ErrorNote); those of instrumentations;
  /// kInternal if a pass produces a program that does not verify, or does not report a change.
  StatusOr<PipelineReport> run(Program& program, PassContext& context,
                               const PassManagerOptions& options = {}) const;

 private:
  PassManager() = default;
  StatusOr<PassRecord> run_pass(size_t index, Program& program, PassContext& context,
                                const PassManagerOptions& options) const;
  [[nodiscard]] Status with_note(Status status, size_t index, ErrorNote note) const;

  Pipeline pipeline_;
  std::vector<std::unique_ptr<Pass>> passes_;
};

}  // namespace millrace::transpiler
