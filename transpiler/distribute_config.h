#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::transpiler {

/// Fields of the original's DistributeTranspilerConfig, with the same names and defaults.
/// Source: spec/transpiler.md section 2.
struct DistributeTranspilerConfig {
  bool slice_var_up = true;  ///< split variables into slices, at most one per server
  std::string split_method =
      "RoundRobin";  ///< how slices are assigned to servers: RoundRobin, HashName, Balanced
  int64_t min_block_size = 8192;  ///< minimum elements of a slice; below 8192 is rejected
  bool enable_dc_asgd = false;    ///< delay compensation; asynchronous training only
  std::string mode = "pserver";   ///< pserver, nccl2 or collective
  bool print_log = false;         ///< collect remarks on what was done
  bool wait_port = true;          ///< get_trainer_program() waits until the servers' ports are open
  bool runtime_split_send_recv =
      false;  ///< send and recv split and join slices at run time; needs sync_mode false
  bool sync_mode = true;    ///< selects only distributed_mode; the argument of transpile() selects
                            ///< the kind of program
  bool half_async = false;  ///< with runtime split: servers wait for a round of all trainers
  bool completely_not_async = false;     ///< asynchronous program, but servers merge per trainer
  bool geo_sgd_mode = false;             ///< read by the communicator at run time
  int64_t geo_sgd_need_push_nums = 100;  ///< steps between two geo pushes; read at run time
  int64_t nccl_comm_num = 1;             ///< communicators (rings)
  bool use_hierarchical_allreduce = false;
  int64_t hierarchical_allreduce_inter_nranks =
      0;                        ///< ranks of one node; <= 1: the number of local devices
  std::string collective_mode;  ///< grad_allreduce, local_sgd or single_process_multi_thread
  /// single_process_multi_thread: 0 = one allreduce per gradient, 1 = all gradients in one buffer,
  /// 2 = one allreduce over a list (the original's PADDLE_FUSE_ALLREDUCE).
  int64_t fuse_allreduce = 1;
  /// single_process_multi_thread: divide the loss gradient by the number of devices and nodes (the
  /// original's PADDLE_LOSS_SCALE).
  bool scale_loss_gradient = true;

  /// Clip gradients on the trainer, before they are sent. False: servers clip merged
  /// gradients, by value only; other clipping is rejected, unless it is in a scope `@CLIP`.
  bool clip_on_trainer = true;
  /// Threads of listen_and_serv; the original takes them from
  /// FLAGS_rpc_{get,send,prefetch}_thread_num.
  int64_t rpc_get_thread_num = 12;
  int64_t rpc_send_thread_num = 12;
  int64_t rpc_prefetch_thread_num = 12;
};

/// Arguments of transpile(), and facts of the program object that its serialized form does not
/// keep.
struct TranspileArguments {
  int64_t trainer_id = 0;
  /// Servers, "ip:port,ip:port".
  std::string pservers = "127.0.0.1:6174";
  /// pserver mode: number of trainers. nccl2 and collective: comma list of the trainers' endpoints.
  std::string trainers = "1";
  bool sync_mode = true;
  std::string current_endpoint = "127.0.0.1:6174";
  /// Seed of the program object; shuffles the order of sends when slicing is off.
  uint32_t random_seed = 0;
  /// Parameters in order of creation; empty: order of declaration.
  std::vector<std::string> parameter_order;
  /// Number of local devices, for hierarchical_allreduce_inter_nranks <= 1 and rings of one
  /// process.
  int64_t device_count = 0;
};

}  // namespace millrace::transpiler
