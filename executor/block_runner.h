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
#include "executor/compiled_ops/compiled_op.h"
#include "executor/observer.h"
#include "executor/runtime.h"
#include "executor/var_locks.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

class GpuOps;
class Overlap;
class Replays;
struct Group;

/// One block of a program, compiled: it has a kernel for each op, and arguments are indices into a
/// table of values. bind() fills the table from a scope; after that run() looks up no names.
///
/// Source: spec/executor.md sections 3 and 5. Thread-safety: one thread at a time.
class BlockRunner {
 public:
  /// \param block   must outlive the runner, as must runtime and device
  /// \param depth   number of enclosing runners; blocks that own each other are rejected
  /// \param order   the ops of the block in the order to run them; empty: block order
  /// Errors: kUnimplemented for an op without a kernel, kInvalidProgram; with the op's location.
  static StatusOr<std::unique_ptr<BlockRunner>> compile(const Runtime& runtime, const Block& block,
                                                        kernels::CpuDevice& device, int depth = 0,
                                                        llvm::ArrayRef<const Op*> order = {});
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;
  ~BlockRunner();

  [[nodiscard]] const Block& block() const { return block_; }
  [[nodiscard]] const Runtime& runtime() const { return runtime_; }
  [[nodiscard]] kernels::CpuDevice& device() const { return device_; }

  /// Points every name to its value: persistable vars of the block in the root scope, its other
  /// vars in this scope, all others wherever the scope finds them (else they are created in this
  /// scope).
  void bind(Scope& scope);

  /// True if a value is kept between runs.
  using Lasts = llvm::function_ref<bool(const Value& value)>;

  /// The values of the block's names in one scope, for blocks that run in several scopes
  /// alternately. Names are looked up only once per scope. Valid as long as the scope.
  struct Binding {
    Scope* scope = nullptr;
    std::vector<Value*> table;
    /// Table indices of values of this scope that a run might read before it writes them, or that
    /// grow.
    std::vector<int32_t> stale;

    /// Drops the content that an earlier run left in these values.
    void forget() const;
  };
  Binding binding(Scope& scope) const;
  /// Call it after bind(). Drops content of an earlier run that the next run might use by
  /// mistake: values that may be read before they are written, arrays, outputs of control ops. A
  /// run after this behaves like a first run.
  /// \param lasts  true for values to keep; null: none
  void forget_last_run(Lasts lasts = nullptr);
  /// Runs all ops in the scope of a binding of this runner; the binding set by bind() stays.
  Status run(Binding& binding);

  /// Lets temporaries share one memory region, planned after the first run. Only for a block whose
  /// values stay bound to one scope. To be called after bind().
  /// \param in_place  an op may write to the memory of an input that no later op reads
  void plan_memory(bool in_place = true);
  /// Lets ops run in parallel if that is expected to save time (executor/overlap). Has no effect
  /// with one thread. To be called after plan_memory() and before the first run.
  void allow_overlap();
  /// The chosen groups of parallel ops; null: none.
  [[nodiscard]] const Overlap* overlap() const { return overlap_.get(); }
  /// Runs the ops if the device has a GPU attached; else null.
  [[nodiscard]] const GpuOps* gpu() const { return gpu_.get(); }
  /// Lets find() return the value of a name that no op uses. To be called before bind().
  void add_name(llvm::StringRef name);
  /// Keeps a value readable after run(); the memory of other values may have been reused.
  void keep(llvm::StringRef name);
  [[nodiscard]] const Arena& arena() const { return arena_; }

  /// Lets other runners use the values of `locks` at the same time: every op holds the locks of
  /// those that it uses. For a block without sub-blocks that does not overlap ops. To be called
  /// after bind(); `locks` must outlive the runs.
  void share_vars(const VarLocks& locks);

  /// Sets an observer that is notified of every op, including those of sub-blocks; null: none. Must
  /// outlive the runs.
  void observe(OpObserver* observer);

  /// Runs all ops in order. Errors: the first one, with the op's location; outputs of ops before it
  /// are kept.
  Status run();
  /// The same without some of the ops (entries of compiled_ops()).
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

  [[nodiscard]] const std::vector<CompiledOp>& compiled_ops() const { return compiled_ops_; }

 private:
  BlockRunner(const Runtime& runtime, const Block& block, kernels::CpuDevice& device);
  /// Table index of a name; a new one if no op mentioned it before.
  int32_t index_of(NameId name);
  /// Creates the value of a name that no scope has, in the scope of the block that declares it.
  [[nodiscard]] Value& make_value(Scope& scope, llvm::StringRef name) const;
  /// Table entries that an op with a kernel writes before any op reads them.
  [[nodiscard]] llvm::BitVector written_first() const;
  /// Compiles one op: resolves its arguments and makes its kernel or control op.
  Status add_op(const Op& op);
  /// Notes the arguments that are input and output at once, with a spare value for each.
  void find_shared(CompiledOp& compiled);
  /// Notes in each op the vars that it is the first to mention and only writes.
  void find_begun();
  /// True if a run might use what an earlier run left in the value. \param var  null: not declared
  [[nodiscard]] bool is_stale(const Var* var, bool is_written_first) const;
  /// \param skipped  ops to leave out; null: none
  Status run_ops(const llvm::BitVector* skipped);
  Status run_in_order(size_t first, size_t end, const llvm::BitVector* skipped);
  /// The ops from i to the end. \param i  afterwards the op that failed
  Status run_each(size_t& i, size_t end, const llvm::BitVector* skipped);
  /// The same on a GPU, which may queue several ops as one recording.
  Status run_recorded(size_t& i, size_t end, Replays& replays);
  [[nodiscard]] Replays* replays_for(const llvm::BitVector* skipped) const;
  Status run_with_overlap();
  /// Called before the first run, when fed and persistable values already have their dims.
  Status choose_overlap();
  /// Makes the kernels of a group again for a device with one thread, which runs them in parallel.
  Status make_kernels(const Group& group, kernels::CpuDevice& device);
  /// Runs an op of a group on a device with one thread.
  Status run_placed(size_t index, kernels::CpuDevice& device);
  /// Checks inputs, prepares outputs and calls the kernel or control op.
  Status run_op(CompiledOp& compiled, kernels::CpuDevice& device);
  Status run_unguarded(CompiledOp& compiled, kernels::CpuDevice& device);
  /// run_unguarded() with the locks of share_vars(). Errors: also kUnimplemented for an output in
  /// the memory of a shared value.
  Status run_locked(CompiledOp& compiled, kernels::CpuDevice& device);
  Status run_gpu_op(CompiledOp& compiled, kernels::CpuDevice& device);
  /// Makes the inputs of a control op what it expects: those that only pass on values between
  /// blocks leave them in device memory.
  Status prepare_control(const CompiledOp& compiled, kernels::CpuDevice& device);
  /// Adds the op's location to an error, unless an op of a sub-block has set its own.
  Status place_error(const CompiledOp& compiled, Status status) const;

  const Runtime& runtime_;
  const Block& block_;
  kernels::CpuDevice& device_;
  std::vector<CompiledOp> compiled_ops_;
  /// Name of each table entry; spares, which have no names, follow the named ones.
  std::vector<NameId> names_;
  llvm::DenseMap<NameId, int32_t> indices_;
  std::vector<Value*> table_;
  std::vector<int32_t> stale_;  ///< as in Binding
  std::vector<std::unique_ptr<Value>> spares_;
  Scope* scope_ = nullptr;
  OpObserver* observer_ = nullptr;
  Arena arena_;
  bool arena_is_used_ = false;
  bool watches_memory_ = false;  ///< MemoryWatch of the device
  std::unique_ptr<Overlap> overlap_;
  std::unique_ptr<GpuOps> gpu_;
  const VarLocks* locks_ = nullptr;                 ///< null: no value is shared
  std::vector<llvm::SmallVector<VarUse, 2>> uses_;  ///< with locks_, for each op
  std::atomic<bool> shapes_changed_ = false;
  int depth_ = 0;  ///< number of enclosing blocks
  llvm::DenseMap<int32_t, std::unique_ptr<BlockRunner>> sub_blocks_;
};

}  // namespace millrace::executor
