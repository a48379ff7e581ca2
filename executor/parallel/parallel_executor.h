#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/observer.h"
#include "executor/parallel/options.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

class GpuOps;

/// The feeds of a run.
struct ParallelFeeds {
  /// One value per var, split over the devices by ParallelOptions::split.
  static ParallelFeeds split(const NamedValues& values) { return {&values, {}, {}}; }
  /// The same, but with the given number of rows for each device.
  static ParallelFeeds rows(const NamedValues& values, llvm::ArrayRef<int64_t> rows) {
    return {&values, {}, rows};
  }
  /// Values for each device.
  static ParallelFeeds list(llvm::ArrayRef<NamedValues> devices) { return {nullptr, devices, {}}; }

  const NamedValues* values = nullptr;
  llvm::ArrayRef<NamedValues> devices;
  llvm::ArrayRef<int64_t> rows_per_device;
};

/// Trains or evaluates a program on several devices of one process at once. Each device has a
/// thread, a scope and a copy of the program; feeds are divided, gradients are exchanged, fetches
/// are joined.
///
/// A run executes the whole program, whatever is fetched. Results do not depend on timing. After an
/// error the executor can run again. Device 0 works in the scope of the caller; the others have
/// scopes inside it for their copies. Source: spec/parallel_executor.md.
/// Thread-safety: one call at a time; the caller's thread is that of device 0.
class ParallelExecutor {
 public:
  /// Copies persistable vars to all devices, builds the program of each, and compiles it.
  ///
  /// \param program  is copied; its feed and fetch ops are left out
  /// \param scope    has the results of the startup program; must outlive the executor
  /// \param threads  of all devices, unless the execution strategy sets it
  /// Errors: those of check_options(), of the passes and of BlockRunner::compile().
  static StatusOr<std::unique_ptr<ParallelExecutor>> create(std::shared_ptr<const Runtime> runtime,
                                                            const Program& program, Scope& scope,
                                                            const ParallelOptions& options,
                                                            int threads = 1);
  ParallelExecutor(const ParallelExecutor&) = delete;
  ParallelExecutor& operator=(const ParallelExecutor&) = delete;
  ~ParallelExecutor();

  /// Runs one step and concatenates the results of the devices along dim 0, in device order;
  /// results without dims become a vector. A feed is used for one run only, but persistable vars
  /// keep their fed values.
  ///
  /// In inference there may be fewer rows (or lists) than devices: the others are left out.
  /// Errors: kInvalidArgument for feeds and for parts that cannot be joined, kNotFound for a fetch
  /// that no device has; those of the ops, with device, step and whether the step has changed
  /// parameters.
  Status run(const ParallelFeeds& feeds, const std::vector<std::string>& fetches,
             std::vector<Value>& results);
  /// The same without joining: results[i] has one value for each device that ran (and micro-batch).
  Status run_unmerged(const ParallelFeeds& feeds, const std::vector<std::string>& fetches,
                      std::vector<std::vector<Value>>& results);

  [[nodiscard]] int device_count() const { return options_.devices; }
  /// Number of runs so far, including failed ones.
  [[nodiscard]] int64_t runs() const { return runs_; }
  /// Scope with the persistable vars of a device.
  [[nodiscard]] Scope& local_scope(int device) const;

  /// Destroys the temporaries of all devices now. Otherwise this happens after a fixed number of
  /// runs.
  void drop_local_exe_scopes();
  /// True before the first run, and after temporaries have been destroyed.
  [[nodiscard]] bool need_create_local_exe_scopes() const { return runs_since_drop_ == 0; }

  /// Sets an observer that is notified of every op of a device; null: none. Must outlive the runs.
  void observe(int device, OpObserver* observer);
  /// State of the random numbers of ops on a device (PreparedProgram::random_position()).
  [[nodiscard]] uint64_t random_position(int device) const;
  void set_random_position(int device, uint64_t position);
  /// Passes, compiled ops and memory of every device as text.
  [[nodiscard]] std::string plan_text() const;
  /// Ops and memory of the GPU of a device; null for a CPU device.
  [[nodiscard]] const GpuOps* gpu(int device) const;
  /// Bytes of the memory that the temporaries of a device share; 0 before the first run.
  [[nodiscard]] int64_t memory_bytes(int device) const;
  /// Remarks on the effect of options, one line each.
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }
  /// Names that feed ops set and fetch ops read in the original program, in order of their columns.
  [[nodiscard]] const std::vector<std::string>& feed_targets() const { return feed_targets_; }
  [[nodiscard]] const std::vector<std::string>& fetch_targets() const { return fetch_targets_; }

 private:
  struct Parts;
  ParallelExecutor(const ParallelOptions& options, std::unique_ptr<Parts> parts);
  Status provide(const ParallelFeeds& feeds, const std::vector<std::string>& fetches);
  Status check_fetches(const std::vector<std::string>& fetches) const;
  Status run_devices(const ParallelFeeds& feeds, const std::vector<std::string>& fetches);
  void count_run();

  ParallelOptions options_;
  std::unique_ptr<Parts> parts_;
  std::vector<std::string> remarks_;
  std::vector<std::string> feed_targets_;
  std::vector<std::string> fetch_targets_;
  int64_t runs_ = 0;
  int64_t runs_since_drop_ = 0;
};

}  // namespace millrace::executor
