#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// How a program runs on several devices: plain values with the names and defaults of the original.
namespace millrace::executor {

/// Which devices get the sum of a gradient.
enum class ReduceStrategy {
  kAllReduce,  ///< every device, which updates all parameters
  kReduce,     ///< one device, which updates the parameter and sends it to the others
};

/// The initial gradient of the loss on each device. Gradients are then summed over devices.
enum class GradientScale {
  kCoeffNumDevice,  ///< one over the number of devices of all processes
  kOne,             ///< 1
  kCustomized,      ///< the value that the caller feeds as the gradient of the loss
  kWeighted,  ///< the device's share of the rows: gives the mean over all rows if parts are uneven
};

/// How a fed tensor is split along dim 0 (along its sequences, if it has LoD).
enum class SplitRule {
  kFloor,  ///< floor(n / devices) rows each, the remainder to the last
  kCeil,   ///< ceil(n / devices) rows each until none are left, at least one
};

/// How a program runs. Fields and defaults are those of the original; spec/parallel_executor.md
/// section 3.1.
struct ExecutionStrategy {
  /// Threads of all devices together. Fewer than devices: only that many devices compute at once.
  /// 0: one per device, or all that the caller grants.
  int num_threads = 0;
  /// Temporaries are destroyed and planned again after this many runs.
  int num_iteration_per_drop_scope = 100;
  int num_iteration_per_run = 1;          ///< how often a run repeats the program on its feeds
  bool allow_op_delay = false;            ///< no effect, as in the original
  bool use_thread_barrier = false;        ///< no effect: devices meet in their exchanges
  bool use_experimental_executor = true;  ///< no effect: there is one scheduler
  bool dry_run = false;                   ///< only feeds and scheduling; ops are not run
};

/// How the program of each device is built. spec/parallel_executor.md section 3.2.
struct BuildStrategy {
  ReduceStrategy reduce_strategy = ReduceStrategy::kAllReduce;
  GradientScale gradient_scale_strategy = GradientScale::kCoeffNumDevice;
  int num_trainers = 1;
  int trainer_id = 0;
  std::vector<std::string> trainers_endpoints;  ///< one per trainer, or none
  bool fuse_all_reduce_ops = true;              ///< exchange gradients in buckets of bucket_bytes
  bool fuse_broadcast_ops = true;  ///< reduce: all parameters of a device are sent together
  bool fuse_all_optimizer_ops = false;
  bool fuse_elewise_add_act_ops = false;
  bool fuse_bn_act_ops = false;
  bool fuse_bn_add_act_ops = true;  ///< no effect on CPU devices
  bool fuse_relu_depthwise_conv = false;
  bool fuse_gemm_epilogue = false;
  bool fused_attention = false;
  bool fused_feedforward = false;
  bool fuse_adamw = false;
  bool enable_auto_fusion = false;
  bool sync_batch_norm = false;
  /// Temporaries share one memory region by liveness; absent means true.
  std::optional<bool> memory_optimize;
  bool enable_inplace = true;  ///< an op may write to the memory of an input that is not used later
  bool enable_addto = false;   ///< no effect: sums of gradients are written in place anyway
  bool enable_sequential_execution = false;  ///< no effect: ops always start in program order
  bool fix_op_run_order = false;             ///< no effect, for the same reason
  /// Optimizer ops run only after all gradients have been exchanged, so an error before that leaves
  /// every parameter unchanged.
  bool enable_backward_optimizer_op_deps = true;
  bool remove_unnecessary_lock = true;  ///< no effect: there are no locks around ops
  bool cache_runtime_context = false;   ///< no effect: arguments are always looked up once
  std::string debug_graphviz_path;      ///< prefix of dot files; empty: none
  std::set<std::string> mkldnn_enabled_op_types;
  /// The program communicates with parameter servers. No effect: its ops determine that, and device
  /// 0 runs them; with async_mode every device does.
  bool is_distribution = false;
  bool async_mode = false;  ///< devices train independently
  int nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int hierarchical_allreduce_inter_nranks = 0;
  /// Not supported: rejected if set.
  bool allow_cuda_graph_capture = false;
  bool build_cinn_pass = false;
  int bkcl_comm_num = 1;
  bool sequential_run = false;

  // Options that the original does not have.

  /// A bucket of gradients of at least this size is exchanged while back-propagation continues.
  /// Absent: 1 MiB within one process, 4 MiB between processes, where every exchange takes longer.
  std::optional<int64_t> bucket_bytes;
  /// Number of parts into which the rows of a device are split; the parts run one after another
  /// before one update, and their gradients are averaged.
  int micro_batches = 1;
  /// all_reduce between CPU devices of one process: each element of a parameter is updated once,
  /// for all devices, if its update op allows that. Results are bit-identical. Cannot be combined
  /// with share_vars_from.
  bool share_updates = true;
};

}  // namespace millrace::executor
