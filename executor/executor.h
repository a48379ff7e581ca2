#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/block_runner.h"
#include "executor/original_places.h"
#include "executor/runtime.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "kernels/random_state.h"

namespace millrace::gpu {
class Context;
}

namespace millrace::executor {

/// How programs run.
struct ExecutorOptions {
  int threads = 1;    ///< threads a run may use, the caller's included
  uint64_t seed = 0;  ///< start of the random numbers of ops whose own seed is 0
  /// Programs are rewritten to run faster (executor/optimize.h). Results change by rounding at
  /// most; places in plans and traces are those of the rewritten program, those in errors are not.
  bool optimize = true;
  /// Factors of float matrix products are rounded to bfloat16, where the processor has products of
  /// those; everything else, parameters included, stays float.
  bool bf16_products = false;
  /// With several threads: independent ops may run side by side, each on one thread, where that is
  /// expected to take less time than one after another on all of them (decision 15 says when it
  /// does).
  bool inter_op = false;
  /// A program for inference gives up the memory of parameters of which its first run makes other
  /// forms (filters folded with a normalisation). Reading them afterwards, from the scope or by
  /// another program, is an error that says so.
  bool release_folded = false;
  /// Looks for kernels that read what nobody has written, or write to memory that is not theirs:
  /// outputs and released memory are filled with NaN and odd numbers, writes to released memory are
  /// errors (kInternal), and every run begins without memory of the one before. Costs time; steps
  /// never run side by side. On the processor: not with a GPU.
  bool debug_memory = false;
  /// A GPU that runs the ops it has kernels for (docs/gpu.md); null: none. Programs then run as
  /// they were given, and persistable vars that the GPU used stay in its memory until they are read
  /// (copy_plain()). Its memory outlives the executor.
  std::shared_ptr<gpu::Context> gpu = nullptr;
};

/// Values by var name.
using NamedValues = std::map<std::string, Value>;

/// A program compiled for one scope. Temporaries live in a scope of its own, so memory is allocated
/// in the first run and kept.
///
/// Thread-safety: one run at a time; several prepared programs run at once if their scopes differ.
class PreparedProgram {
 public:
  PreparedProgram(const PreparedProgram&) = delete;
  PreparedProgram& operator=(const PreparedProgram&) = delete;
  ~PreparedProgram() = default;

  /// Copies the fed values into place, runs block 0, and copies out what is fetched. Feeds serve
  /// one run, and no run sees temporaries of another. The second run of the same shapes allocates
  /// nothing, results included. The first fetch of a var that a rewrite has removed compiles the
  /// program anew with that var.
  ///
  /// \param feeds    by var name; they serve this run only
  /// \param fetches  names of vars that the program uses; repeats are allowed
  /// \param results  receives the values in the order of fetches; memory it has is used again
  /// Errors: kInvalidArgument for a feed that is one of the program's parameters, that disagrees
  /// with a declaration, or that the program does not declare while it lacks another, kNotFound for
  /// an unknown fetch, those of the ops with their place; results are then unspecified. The program
  /// can run again after an error.
  Status run(const NamedValues& feeds, const std::vector<std::string>& fetches,
             std::vector<Value>& results);

  /// Is told of every op of the runs from now on; null: nobody. Must outlive them.
  void observe(StepObserver* observer) {
    observer_ = observer;
    runner_->observe(observer);
  }
  /// Where the random numbers of ops whose own seed is 0 stand. A program that is set to a position
  /// goes on as the one that had it.
  [[nodiscard]] uint64_t random_position() const { return kernels::random_position(*device_); }
  void set_random_position(uint64_t position) { kernels::set_random_position(*device_, position); }
  /// Steps and memory as text; with dims and places after a run.
  [[nodiscard]] std::string plan_text() const;
  /// Bytes of the piece of memory that temporaries share; 0 before the first run.
  [[nodiscard]] int64_t memory_bytes() const { return runner_->arena().bytes(); }
  /// Where its steps run; null without a GPU.
  [[nodiscard]] const GpuSteps* gpu() const { return runner_->gpu(); }
  /// The program as it runs.
  [[nodiscard]] const Program& program() const { return *program_; }
  /// The program as it was given.
  [[nodiscard]] const Program& given() const {
    return original_ == nullptr ? *program_ : *original_;
  }
  /// Names that feed ops set and fetch ops read, in order of their attribute `col`.
  [[nodiscard]] const std::vector<std::string>& feed_targets() const { return feed_targets_; }
  [[nodiscard]] const std::vector<std::string>& fetch_targets() const { return fetch_targets_; }

 private:
  friend class Executor;
  PreparedProgram() = default;
  Status compile(std::unique_ptr<Program> given);
  Status provide(const std::vector<std::string>& fetches);
  void forget_last_run(const NamedValues& feeds);
  Status put_feed(const std::string& name, const Value& value);

  std::shared_ptr<const Runtime> runtime_;
  Scope* scope_ = nullptr;
  StepObserver* observer_ = nullptr;
  ExecutorOptions options_;
  OriginalPlaces places_;              ///< in original_
  std::unique_ptr<Program> original_;  ///< null if the program runs as it was given
  std::vector<std::string> kept_;      ///< fetches that a rewrite had removed
  std::unique_ptr<Program> program_;
  std::unique_ptr<kernels::CpuDevice> device_;
  std::unique_ptr<Scope> locals_;
  std::unique_ptr<BlockRunner> runner_;
  std::vector<const Value*> fed_;  ///< targets of the feeds of this run
  std::vector<std::string> feed_targets_;
  std::vector<std::string> fetch_targets_;
};

/// Runs programs on the CPU.
///
/// Executors share nothing but the immutable runtime. Source: spec/executor.md.
class Executor {
 public:
  explicit Executor(std::shared_ptr<const Runtime> runtime, ExecutorOptions options = {})
      : runtime_(std::move(runtime)), options_(std::move(options)) {}

  /// Compiles a copy of the program for a scope, which holds its persistable vars and must outlive
  /// the result. Errors: kUnimplemented, kInvalidProgram with the op's place.
  StatusOr<std::unique_ptr<PreparedProgram>> prepare(const Program& program, Scope& scope) const;
  /// The same without a copy; the result keeps the program (PreparedProgram::given()).
  StatusOr<std::unique_ptr<PreparedProgram>> prepare(std::unique_ptr<Program> program,
                                                     Scope& scope) const;

 private:
  std::shared_ptr<const Runtime> runtime_;
  ExecutorOptions options_;
};

}  // namespace millrace::executor
