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

/// Options for running programs.
struct ExecutorOptions {
  int threads = 1;    ///< threads that a run may use, including the caller's; at least 1
  uint64_t seed = 0;  ///< initial state of the random numbers of ops whose seed attribute is 0
  /// Programs are rewritten to run faster (executor/optimize.h). Results change at most by
  /// rounding. Locations in plans and traces refer to the rewritten program, those in errors to the
  /// original one.
  bool optimize = true;
  /// Factors of float matrix products are rounded to bfloat16 if the processor supports bfloat16
  /// products; everything else, including parameters, stays float.
  bool bf16_products = false;
  /// With several threads: independent ops may run in parallel, each on one thread, if that is
  /// expected to take less time than running them one after another on all threads (see
  /// docs/decisions, decision 15).
  bool inter_op = false;
  /// A program for inference frees the memory of parameters that its first run converts to another
  /// form (filters folded with a normalization). Reading them afterwards, from the scope or by
  /// another program, is an error that says so.
  bool release_folded = false;
  /// Detects kernels that read unwritten memory or write to memory that is not theirs: outputs and
  /// released memory are filled with NaN and unusual numbers, writes to released memory are errors
  /// (kInternal), and no run starts with memory of an earlier one. Also finds rewrites that leave
  /// an invalid program (kInternal). Costs time; ops never run in parallel. CPU only: cannot be
  /// combined with a GPU.
  bool debug_memory = false;
  /// A GPU that runs the ops it has kernels for (docs/gpu.md); null: none. Only rewrites whose ops
  /// it has are made then; inter_op, release_folded and debug_memory are refused; bf16_products has
  /// no effect, because it is chosen when the GPU is opened (executor/gpu/open_device.h).
  /// Persistable vars that the GPU used stay in its memory until they are read (copy_plain()). GPU
  /// memory held by values may outlive the executor.
  std::shared_ptr<gpu::Context> gpu = nullptr;
};

/// Values by var name.
using NamedValues = std::map<std::string, Value>;

/// A program compiled for one scope. Temporaries are in a separate scope, so memory is allocated in
/// the first run and kept.
///
/// Thread-safety: one run at a time; several prepared programs run at once if their scopes differ,
/// or with share_vars().
class PreparedProgram {
 public:
  PreparedProgram(const PreparedProgram&) = delete;
  PreparedProgram& operator=(const PreparedProgram&) = delete;
  ~PreparedProgram() = default;

  /// Copies the fed values into the program's vars, runs block 0, and copies out the fetched
  /// values. Feeds are used for one run only, and no run sees temporaries of another. A second run
  /// with the same shapes allocates nothing, not even for results. The first fetch of a var that a
  /// rewrite removed compiles the program again, keeping that var.
  ///
  /// \param feeds    by var name; used for this run only
  /// \param fetches  names of vars that the program uses; repeats are allowed
  /// \param results  receives the values in the order of fetches; its memory is reused
  /// Errors: kInvalidArgument for a feed that is a parameter of the program, that disagrees with
  /// its declaration, or that the program does not declare while another feed is missing; kNotFound
  /// for an unknown fetch; those of the ops with their location. Results are then unspecified. The
  /// program can run again after an error.
  Status run(const NamedValues& feeds, const std::vector<std::string>& fetches,
             std::vector<Value>& results);

  /// The program as passed to prepare(), compiled again for the same scope and `threads` threads.
  /// Errors: those of Executor::prepare().
  [[nodiscard]] StatusOr<std::unique_ptr<PreparedProgram>> prepare_again(int threads) const;
  /// Compiles the program so that runs can fetch these vars. Errors: those of run() for fetches.
  Status provide(const std::vector<std::string>& fetches);
  /// Lets other programs run at the same time with the same scope (executor/var_locks.h).
  /// parallel/worker_programs.h does that. Later runs may only fetch what provide() has prepared,
  /// and may not feed shared variables (kInvalidArgument). `locks` must outlive the runs.
  void share_vars(const VarLocks& locks);

  /// Sets an observer that is notified of every op of later runs; null: none. Must outlive them.
  void observe(OpObserver* observer) {
    observer_ = observer;
    runner_->observe(observer);
  }
  /// State of the random numbers of ops whose seed attribute is 0. A program that is set to a
  /// position continues like the program that was at that position.
  [[nodiscard]] uint64_t random_position() const { return kernels::random_position(*device_); }
  void set_random_position(uint64_t position) { kernels::set_random_position(*device_, position); }
  /// Compiled ops and memory as text; includes dims and memory offsets after a run.
  [[nodiscard]] std::string plan_text() const;
  [[nodiscard]] const ExecutorOptions& options() const { return options_; }
  [[nodiscard]] const Runtime& runtime() const { return *runtime_; }
  /// Its persistable vars.
  [[nodiscard]] Scope& scope() const { return *scope_; }
  /// Bytes of the memory that temporaries share; 0 before the first run.
  [[nodiscard]] int64_t memory_bytes() const { return runner_->arena().bytes(); }
  /// Runs its ops; null without a GPU.
  [[nodiscard]] const GpuOps* gpu() const { return runner_->gpu(); }
  /// The program after rewriting.
  [[nodiscard]] const Program& program() const { return *program_; }
  /// The program as passed to prepare().
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
  void forget_last_run(const NamedValues& feeds);
  Status put_feed(const std::string& name, const Value& value);

  std::shared_ptr<const Runtime> runtime_;
  Scope* scope_ = nullptr;
  OpObserver* observer_ = nullptr;
  ExecutorOptions options_;
  OriginalPlaces places_;              ///< in original_
  std::unique_ptr<Program> original_;  ///< null if the program was not rewritten
  std::vector<std::string> kept_;      ///< fetches that a rewrite had removed
  std::unique_ptr<Program> program_;
  std::unique_ptr<kernels::CpuDevice> device_;
  std::unique_ptr<Scope> locals_;
  std::unique_ptr<BlockRunner> runner_;
  const VarLocks* locks_ = nullptr;  ///< null: no other program runs with the scope
  std::vector<const Value*> fed_;    ///< targets of the feeds of this run
  std::vector<std::string> feed_targets_;
  std::vector<std::string> fetch_targets_;
};

/// Runs programs on the CPU, or on a GPU (ExecutorOptions::gpu).
///
/// Executors share nothing but the immutable runtime. Source: spec/executor.md.
class Executor {
 public:
  explicit Executor(std::shared_ptr<const Runtime> runtime, ExecutorOptions options = {})
      : runtime_(std::move(runtime)), options_(std::move(options)) {}

  /// Verifies a program with the schemas of this executor. Kernels rely on what it checks:
  /// prepare() is for programs that have passed. Errors: kInvalidProgram with the op's location.
  [[nodiscard]] Status check(const Program& program) const;

  /// Compiles a copy of the program for a scope, which holds its persistable vars and must outlive
  /// the result. Errors: kUnimplemented, kInvalidProgram with the op's location; kInvalidArgument
  /// for `threads` below 1; kUnimplemented for options that concern the CPU only, with a GPU.
  StatusOr<std::unique_ptr<PreparedProgram>> prepare(const Program& program, Scope& scope) const;
  /// The same without a copy; the result owns the program (PreparedProgram::given()).
  StatusOr<std::unique_ptr<PreparedProgram>> prepare(std::unique_ptr<Program> program,
                                                     Scope& scope) const;

 private:
  std::shared_ptr<const Runtime> runtime_;
  ExecutorOptions options_;
};

}  // namespace millrace::executor
