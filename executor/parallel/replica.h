#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/block_runner.h"
#include "executor/parallel/exchange_kernels.h"
#include "executor/parallel/split_feeds.h"
#include "executor/runtime.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// Difference between the seeds of neighbouring devices; gives unrelated sequences.
inline constexpr uint64_t kSeedStep = 0x9e3779b97f4a7c15ULL;

/// How one device of a ParallelExecutor runs.
struct ReplicaOptions {
  int device = 0;
  int threads = 1;
  uint64_t seed = 0;
  bool shares_memory = true;  ///< temporaries share memory by liveness
  bool in_place = true;
  bool dry_run = false;
  bool debug_memory = false;
  int micro_batches = 1;
  std::shared_ptr<gpu::Context> gpu = nullptr;  ///< on which it runs; null: the CPU
};

/// One device: its CpuDevice, its compiled program and its scope of temporaries.
/// Thread-safety: one thread at a time.
class Replica {
 public:
  /// \param program  of this device
  /// \param scope    has the persistable vars of this device; must outlive the replica
  /// Errors: those of BlockRunner::compile().
  static StatusOr<std::unique_ptr<Replica>> create(std::shared_ptr<const Runtime> runtime,
                                                   std::unique_ptr<Program> program, Scope& scope,
                                                   const ReplicaOptions& options);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// Adds the device to a group.
  /// \param exchange  number of the exchange that kernels use
  /// \param links  between the GPUs; null: values travel by host memory
  /// \param ranks  to the GPUs of other processes; null likewise
  void join(ExchangeGroup& group, int exchange, SharedUpdates& updates, DeviceLinks* links,
            TrainerLink* ranks);

  /// Feeds and runs the micro-batches of a step, and copies the fetched values after each: results
  /// has those of the first micro-batch, then those of the second, ... Vars that the device does
  /// not have stay empty.
  Status run(std::vector<DeviceFeed>& feeds, const std::vector<std::string>& fetches,
             std::vector<Value>& results);

  /// Destroys the temporaries; the next run allocates and plans memory again.
  void drop_temporaries();

  /// Value of a name on this device; null if there is none.
  [[nodiscard]] Value* find(const std::string& name) const;
  [[nodiscard]] const Program& program() const { return *program_; }
  [[nodiscard]] Scope& scope() const { return scope_; }
  [[nodiscard]] BlockRunner& runner() const { return *runner_; }
  /// Index of the first update op; the number of ops if there is none.
  [[nodiscard]] int64_t first_update() const { return first_update_; }
  /// True if all devices compute that update together.
  [[nodiscard]] bool shares_first_update() const { return shares_first_update_; }

 private:
  Replica(std::shared_ptr<const Runtime> runtime, std::unique_ptr<Program> program, Scope& scope,
          const ReplicaOptions& options);
  void forget_last_run(const NamedValues& feeds, int micro_batch);
  Status feed(const NamedValues& values);
  void find_phases();
  void bind();

  std::shared_ptr<const Runtime> runtime_;
  std::unique_ptr<Program> program_;
  Scope& scope_;
  ReplicaOptions options_;
  kernels::CpuDevice device_;
  std::unique_ptr<KernelGroup> kernel_group_;
  std::unique_ptr<KernelUpdates> kernel_updates_;
  std::unique_ptr<Scope> locals_;
  std::unique_ptr<BlockRunner> runner_;
  int64_t first_update_ = 0;
  bool shares_first_update_ = false;
  llvm::BitVector all_;       ///< all compiled ops
  llvm::BitVector schedule_;  ///< learning-rate schedules: in the first micro-batch only
  llvm::BitVector update_;    ///< exchanges and updates: in the last micro-batch only
};

}  // namespace millrace::executor
