#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/BitVector.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/StringRef.h>

#include "executor/arena.h"
#include "executor/observer.h"
#include "executor/runtime.h"
#include "executor/step.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

class GpuSteps;
class Overlap;
struct Group;

/// One block of a program, compiled: kernels are made, arguments are indices into a table of
/// values. The table is filled from a scope by bind(); run() then looks up no names.
///
/// Source: spec/executor.md sections 3 and 5. Thread-safety: one thread at a time.
class BlockRunner {
 public:
  /// \param block   must outlive the runner, as must runtime and device
  /// Errors: kUnimplemented for an op without kernel, kInvalidProgram; with the op's place.
  /// \param depth   runners around this one; programs whose blocks own each other are refused
  /// \param order   the ops of the block as they are to run; empty: as they stand
  static StatusOr<std::unique_ptr<BlockRunner>> compile(const Runtime& runtime, const Block& block,
                                                        kernels::CpuDevice& device, int depth = 0,
                                                        llvm::ArrayRef<const Op*> order = {});
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;
  ~BlockRunner();

  [[nodiscard]] const Block& block() const { return block_; }
  [[nodiscard]] const Runtime& runtime() const { return runtime_; }
  [[nodiscard]] kernels::CpuDevice& device() const { return device_; }

  /// Points every name at its value: persistable vars of the block in the root scope, its other
  /// vars in this scope, the rest where the scope finds them (else made in this scope).
  void bind(Scope& scope);

  /// Says of a value that it lasts longer than a run.
  using Lasts = llvm::function_ref<bool(const Value& value)>;

  /// Where the names of the block stand in one scope, for blocks that run in several scopes by
  /// turns: looked up once, then a run costs nothing more. Valid as long as the scope.
  struct Binding {
    Scope* scope = nullptr;
    std::vector<Value*> table;
    /// Places in the table of values of this scope that a run might read before it writes them, or
    /// that grow.
    std::vector<int32_t> stale;

    /// Drops what an earlier run left in such values.
    void forget() const;
  };
  Binding binding(Scope& scope) const;
  /// After bind(): drops what an earlier run left in the scope and the next run might take for its
  /// own: values that may be read before they are written, arrays, what control ops yield. A run
  /// after this finds the scope as a first run does.
  /// \param lasts  says of a value that it stays; null: none does
  void forget_last_run(Lasts lasts = nullptr);
  /// Runs all ops in the scope of a binding of this runner; what bind() has set stays.
  Status run(Binding& binding);

  /// Lets temporaries share one piece of memory, planned after the first run. Only for a block
  /// whose values stay bound to one scope. After bind().
  /// \param in_place  an op may write where an input is that nobody reads after it
  void plan_memory(bool in_place = true);
  /// Lets steps run side by side where that is expected to pay (executor/overlap). With one thread
  /// it does nothing. After plan_memory(), before the first run.
  void allow_overlap();
  /// What has been chosen of it; null: nothing.
  [[nodiscard]] const Overlap* overlap() const { return overlap_.get(); }
  /// Where steps run if the device has a GPU attached and this is no sub-block; else null.
  [[nodiscard]] const GpuSteps* gpu() const { return gpu_.get(); }
  /// Makes a value readable after run(); others may have lost their memory by then.
  void keep(llvm::StringRef name);
  [[nodiscard]] const Arena& arena() const { return arena_; }

  /// Is told of every op from now on, in sub-blocks, too; null: nobody. Must outlive the runs.
  void observe(StepObserver* observer);

  /// Runs all ops in order. Errors: the first one, with the op's place; outputs of ops before it
  /// stay.
  Status run();
  /// The same without some of the ops (entries of steps()).
  Status run_without(const llvm::BitVector& skipped);
  /// bind() and run(), for a scope that is used once.
  Status run_in(Scope& scope) {
    bind(scope);
    return run();
  }

  /// Value of a name that an op of the block uses; null for other names. After bind().
  [[nodiscard]] Value* find(llvm::StringRef name) const;
  /// The runner of another block of the program, compiled at first use.
  StatusOr<BlockRunner*> sub_block(int32_t index);

  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

 private:
  BlockRunner(const Runtime& runtime, const Block& block, kernels::CpuDevice& device);
  int32_t index_of(NameId name);
  [[nodiscard]] Value& make_value(Scope& scope, llvm::StringRef name) const;
  [[nodiscard]] llvm::BitVector written_first() const;
  Status add_step(const Op& op);
  void find_shared(Step& step);
  void find_begun();
  [[nodiscard]] bool is_stale(const Var* var, bool is_written_first) const;
  Status run_steps(const llvm::BitVector* skipped);
  Status run_in_order(size_t first, size_t end, const llvm::BitVector* skipped);
  Status run_with_overlap();
  Status choose_overlap();
  Status make_kernels(const Group& group, kernels::CpuDevice& device);
  Status run_placed(size_t index, kernels::CpuDevice& device);
  Status run_step(Step& step, kernels::CpuDevice& device);
  Status run_gpu_step(Step& step, kernels::CpuDevice& device);
  Status place_error(const Step& step, Status status) const;

  const Runtime& runtime_;
  const Block& block_;
  kernels::CpuDevice& device_;
  std::vector<Step> steps_;
  /// Name of each table entry; spares, which have none, stand behind the named ones.
  std::vector<NameId> names_;
  llvm::DenseMap<NameId, int32_t> indices_;
  std::vector<Value*> table_;
  std::vector<int32_t> stale_;  ///< as in Binding
  std::vector<std::unique_ptr<Value>> spares_;
  Scope* scope_ = nullptr;
  StepObserver* observer_ = nullptr;
  Arena arena_;
  bool arena_is_used_ = false;
  bool watches_memory_ = false;  ///< MemoryWatch of the device
  std::unique_ptr<Overlap> overlap_;
  std::unique_ptr<GpuSteps> gpu_;
  std::atomic<bool> shapes_changed_ = false;
  int depth_ = 0;  ///< blocks around this one
  llvm::DenseMap<int32_t, std::unique_ptr<BlockRunner>> sub_blocks_;
};

}  // namespace millrace::executor
