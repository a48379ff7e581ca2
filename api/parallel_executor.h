#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/connection.h"
#include "api/scope.h"
#include "executor/array.h"
#include "executor/custom_op.h"
#include "executor/parallel/strategies.h"
#include "framework/base/status.h"

namespace millrace {
class Program;
}

namespace millrace::api {

using executor::BuildStrategy;
using executor::ExecutionStrategy;
using executor::GradientScale;
using executor::ReduceStrategy;
using executor::SplitRule;

class ParallelExecutor;
class Dataset;
struct EpochOptions;
struct EpochResult;

/// Options of a ParallelExecutor. Fields of the strategies that have no effect say so where they
/// are declared, and ParallelExecutor::remarks() lists those that were set.
struct ParallelOptions {
  int devices = 1;  ///< CPU devices, at least 1; CPU_NUM of the original
  /// "gpu:0,1" for several GPUs by their numbers, "gpu:N" for one (docs/gpu.md): their number takes
  /// the place of `devices`, which must be 1 or the same. With `share_vars_from`: that executor's.
  std::string device = "cpu";
  std::string loss_name = {};  ///< needed for programs that train
  /// An executor that has run once, and whose variables are used, and kept; the scope argument is
  /// then ignored, and both must not run at the same time. Null: none.
  const ParallelExecutor* share_vars_from = nullptr;
  ExecutionStrategy exec_strategy = {};
  BuildStrategy build_strategy = {};
  SplitRule split = SplitRule::kFloor;  ///< how feeds are divided
  int threads = 1;                      ///< of all devices together, unless exec_strategy sets it
  bool optimize = true;                 ///< programs are rewritten to run faster
  bool bf16_products = false;           ///< as in ExecutorOptions
  bool debug_memory = false;            ///< as in ExecutorOptions
  uint64_t seed = 0;  ///< initial state of random numbers; each device has its own sequence
  int64_t wait_timeout_ms = 600'000;      ///< how long a device waits for the others
  std::vector<CustomOp> custom_ops = {};  ///< as in ExecutorOptions
  std::string allow_dir = {};             ///< as in ExecutorOptions
  /// Processes that train the program together, as those of mode nccl2: all begin with the values
  /// of rank 0, and gradients are summed over all devices of all ranks. They set num_trainers and
  /// trainer_id of build_strategy. Absent: this process trains alone.
  std::optional<Ranks> ranks = {};
};

/// Trains or evaluates a program on several devices of this process at once: feeds are divided
/// along dim 0, gradients are exchanged, fetches are joined. A run executes the whole program.
/// Results do not depend on timing. Device 0 works in the given scope, the others on copies.
/// Movable; keeps the scope alive. Thread-safety: one call at a time, per scope.
class ParallelExecutor {
 public:
  /// Copies persistable vars to all devices, and compiles the program for each.
  ///
  /// \param program  is copied; its feed and fetch ops are left out
  /// \param scope    has the results of the startup program
  /// Errors: kInvalidArgument naming the option, or without loss_name for a program that trains;
  /// also for num_trainers or trainer_id that are not those of `ranks`, and num_trainers above 1
  /// without them; those of Executor::create() for a device; kUnimplemented naming an option that
  /// no build supports; kDistributed; those of Executor::prepare().
  static StatusOr<ParallelExecutor> create(const Program& program, const Scope& scope,
                                           const ParallelOptions& options);
  ParallelExecutor(ParallelExecutor&&) noexcept;
  ParallelExecutor& operator=(ParallelExecutor&&) noexcept;
  ParallelExecutor(const ParallelExecutor&) = delete;
  ParallelExecutor& operator=(const ParallelExecutor&) = delete;
  ~ParallelExecutor();

  /// Runs one step with feeds that are split over the devices by ParallelOptions::split. Results
  /// are joined along dim 0 in device order; results without dims become a vector with one element
  /// per device.
  ///
  /// Errors: kInvalidArgument for a feed that cannot be split or disagrees with its declaration,
  /// and for results that cannot be joined; kNotFound for a fetch that no device has; those of the
  /// ops, with device, step, and whether parameters have changed. It can run again afterwards.
  StatusOr<Arrays> run(const Arrays& feeds, const std::vector<std::string>& fetches);
  /// The same with feeds for each device; one map per device (in inference fewer).
  StatusOr<Arrays> run(const std::vector<Arrays>& feeds, const std::vector<std::string>& fetches);
  /// The same without joining: results[name] has one array per device that ran (and micro-batch).
  StatusOr<std::map<std::string, std::vector<Array>>> run_unmerged(
      const Arrays& feeds, const std::vector<std::string>& fetches);

  /// Runs one step for every batch of a data set (api/dataset.h), each split over the devices.
  /// Errors: as PreparedProgram::train_from_dataset() of api/executor.h, `ranks` included; a last
  /// batch that is too small to be split, unless the data set has `drop_last`.
  StatusOr<EpochResult> train_from_dataset(Dataset& dataset, const EpochOptions& options);
  /// The same for a program that does not train. Errors: also kInvalidArgument for one that updates
  /// parameters.
  StatusOr<EpochResult> infer_from_dataset(Dataset& dataset, const EpochOptions& options);

  /// A persistable var of a device. Errors: kNotFound for a device or var that does not exist;
  /// kInvalidArgument if it is not a dense array.
  [[nodiscard]] StatusOr<Array> get(int device, const std::string& name) const;
  /// Copies the present value of a var of the scope to the other devices, after Scope::set().
  /// Errors: kNotFound without a value.
  Status spread(const std::string& name);

  [[nodiscard]] int device_count() const;
  /// Number of runs so far, including failed ones.
  [[nodiscard]] int64_t runs() const;
  /// Destroys the temporaries of all devices now; otherwise this happens after every
  /// num_iteration_per_drop_scope runs.
  void drop_local_exe_scopes();
  /// Options that had no effect or were changed, one line each.
  [[nodiscard]] const std::vector<std::string>& remarks() const;
  /// Passes, ops and memory of every device as text, for people; the form may change.
  [[nodiscard]] std::string plan_text() const;

 private:
  struct Parts;
  explicit ParallelExecutor(std::shared_ptr<Parts> parts);
  PartsPtr<Parts, std::shared_ptr<Parts>> parts_;
};

}  // namespace millrace::api
