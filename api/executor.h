#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/connection.h"
#include "api/scope.h"
#include "executor/array.h"
#include "executor/custom_op.h"
#include "framework/base/status.h"

namespace millrace {
class Program;
}

namespace millrace::api {

class Dataset;
struct EpochOptions;
struct EpochResult;

/// Options of an executor.
struct ExecutorOptions {
  int threads = 1;    ///< threads that a run may use, including the caller's; at least 1
  uint64_t seed = 0;  ///< initial state of the random numbers of ops whose seed attribute is 0
  /// Programs are rewritten to run faster; results change at most by rounding.
  bool optimize = true;
  /// Where ops run: "cpu", or "gpu:N" for the GPU with number N; ops that it lacks run on the CPU
  /// (docs/gpu.md). Variables that the GPU used stay there and are copied when they are read.
  std::string device = "cpu";
  /// Factors of float matrix products are rounded to bfloat16 where the processor multiplies those,
  /// or on a GPU.
  bool bf16_products = false;
  /// On a GPU: factors of products and convolutions are rounded to 10 bits of mantissa (TF32).
  bool tf32_products = false;
  /// With several threads: independent ops may run at the same time, each on one thread. CPU only:
  /// with another device, create() refuses it (kUnimplemented).
  bool inter_op = false;
  /// Finds ops that leave results unwritten or write to memory that is not theirs (kInternal).
  /// Costs time.
  bool debug_memory = false;
  /// Ops that programs use and this library does not have.
  std::vector<CustomOp> custom_ops = {};
  /// Folder that ops such as load and save may use; empty: such programs are rejected.
  std::string allow_dir = {};
  /// The other ranks of collective training; absent: programs with collective ops are refused.
  /// Ranks have random numbers of their own.
  std::optional<Ranks> ranks = {};
};

/// A fetched value: a dense array, some rows of a matrix (sparse gradients), or the arrays of a
/// list (LoDTensorArray; elements that were never written have no dims and no bytes).
using FetchedValue = std::variant<Array, Rows, std::vector<Array>>;

/// A program that was compiled for a scope. Its temporaries are its own: a run sees only the feeds
/// and the persistable vars of the scope. Movable; keeps the scope alive.
/// Thread-safety: one run at a time per scope.
class PreparedProgram {
 public:
  PreparedProgram(PreparedProgram&&) noexcept;
  PreparedProgram& operator=(PreparedProgram&&) noexcept;
  PreparedProgram(const PreparedProgram&) = delete;
  PreparedProgram& operator=(const PreparedProgram&) = delete;
  ~PreparedProgram();

  /// Runs block 0 once.
  ///
  /// \param feeds    by var name, for this run only; dtype and dims as declared, where -1 is any
  ///                 extent
  /// \param fetches  vars to return; empty: outputs()
  /// \returns the fetches by name
  /// Errors: kInvalidArgument for a feed that disagrees with its declaration, is a parameter, or is
  /// unknown, and for a fetch that is not a dense array; kNotFound for an unknown fetch; kExecution
  /// and others of the ops with their location. Persistable vars that ops before the failing one
  /// have written keep their new values. It can run again afterwards.
  StatusOr<Arrays> run(const Arrays& feeds, const std::vector<std::string>& fetches = {});
  /// The same for feeds in the caller's memory (views_of() makes them of arrays), and fetches that
  /// need not be dense arrays. Errors: as run(), but for a fetch
  /// kInvalidArgument only if it is none of the kinds of FetchedValue.
  StatusOr<std::map<std::string, FetchedValue>> run_any(
      const ArrayViews& feeds, const std::vector<std::string>& fetches = {});

  /// Runs the program once for every batch of a data set (api/dataset.h).
  /// Errors: kInvalidArgument naming the option; those of run(), with the number of the batch;
  /// those of the readers of the data set, after the batches before the error have run;
  /// kUnimplemented for EpochOptions::threads where it says so. For a program that ranks run
  /// together also kInvalidData for different numbers of batches, and kUnimplemented for several
  /// threads and for a data set that is not in memory.
  StatusOr<EpochResult> train_from_dataset(Dataset& dataset, const EpochOptions& options);
  /// The same for a program that does not train. Errors: also kInvalidArgument for one that updates
  /// parameters; nothing has run then.
  StatusOr<EpochResult> infer_from_dataset(Dataset& dataset, const EpochOptions& options);

  /// Names that feed ops set and fetch ops read, in order of their columns; empty for programs
  /// without such ops.
  [[nodiscard]] const std::vector<std::string>& inputs() const;
  [[nodiscard]] const std::vector<std::string>& outputs() const;
  /// State of the random numbers of ops whose seed attribute is 0. A program that is set to a
  /// position continues like the one that was there.
  [[nodiscard]] uint64_t random_position() const;
  void set_random_position(uint64_t position);
  /// Compiled ops and memory as text, for people; the form may change.
  [[nodiscard]] std::string plan_text() const;

 private:
  friend class Executor;
  struct Parts;
  explicit PreparedProgram(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

/// Runs programs: the original's Executor, with the scope as an argument.
///
///   MILLRACE_ASSIGN_OR_RETURN(Executor executor, Executor::create({.threads = 4}));
///   Scope scope;
///   MILLRACE_RETURN_IF_ERROR(executor.run(*startup, scope).status());
///   MILLRACE_ASSIGN_OR_RETURN(PreparedProgram training, executor.prepare(*main, scope));
///   for (const Arrays& batch : batches) training.run(batch, {"loss"});
///
/// Movable. Thread-safety: prepare() may be called concurrently for different scopes; run() is one
/// call at a time, because its runs share a sequence of random numbers.
class Executor {
 public:
  /// Errors: kInvalidArgument for fewer than 1 thread, and for a custom op without a name or whose
  /// type already exists; kInvalidArgument or kUnimplemented for a device that is not there, and
  /// kUnimplemented for debug_memory on a GPU.
  static StatusOr<Executor> create(const ExecutorOptions& options = {});
  Executor(Executor&&) noexcept;
  Executor& operator=(Executor&&) noexcept;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Compiles a copy of a program for a scope. Several programs may be prepared for one scope, such
  /// as training and evaluation. Errors: kUnimplemented for an op without a kernel, kInvalidProgram
  /// with the op's location.
  [[nodiscard]] StatusOr<PreparedProgram> prepare(const Program& program, const Scope& scope) const;

  /// Compiles and runs a program once, for startup programs and the like; for steps, prepare() is
  /// much faster. Random numbers continue from the last run(). Errors: those of prepare() and of
  /// PreparedProgram::run().
  StatusOr<Arrays> run(const Program& program, const Scope& scope, const Arrays& feeds = {},
                       const std::vector<std::string>& fetches = {});
  /// Compiles a program and runs it once for every batch of a data set. Random numbers continue
  /// from the last call. Errors: those of prepare() and of
  /// PreparedProgram::train_from_dataset().
  StatusOr<EpochResult> train_from_dataset(const Program& program, const Scope& scope,
                                           Dataset& dataset, const EpochOptions& options);
  /// The same for a program that does not train. Errors: also those of
  /// PreparedProgram::infer_from_dataset().
  StatusOr<EpochResult> infer_from_dataset(const Program& program, const Scope& scope,
                                           Dataset& dataset, const EpochOptions& options);

 private:
  struct Parts;
  explicit Executor(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

}  // namespace millrace::api
