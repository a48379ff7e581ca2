#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::ps {

/// How trainers and servers synchronize. The numbers are those of the original.
enum class CommMode : int {
  kSync = 0,       ///< every trainer waits for all others in every step
  kAsync = 1,      ///< gradients are sent and parameters received in the background
  kHalfAsync = 2,  ///< the threads of one trainer wait for each other and for its servers
  kGeo = 3,        ///< trainers update parameters themselves and exchange differences
};

/// The mode of a number. Errors: kInvalidArgument for a number that is not a mode.
StatusOr<CommMode> comm_mode(int number);
/// "sync", "async", "half-async", "geo"
std::string_view comm_mode_name(CommMode mode);

/// Settings of a Communicator; names and defaults are those of the original
/// (spec/ps_runtime.md section 5).
struct CommunicatorOptions {
  /// Maximum number of batches of a var in one message. In geo: steps between pushes. In sync and
  /// half-async always cpu_num.
  int max_merge_var_num = 1;
  /// Maximum number of batches of a var waiting to be sent; when the queue is full, the trainer
  /// waits. In sync and half-async always cpu_num.
  int send_queue_size = 1;
  /// How long a message that is not full waits for the next batch, in units of 10 ms.
  int send_wait_times = 5;
  /// Number of threads that send.
  int thread_pool_size = 5;
  /// Async: parameters are received by a separate thread (true), or right after each send of a
  /// table.
  bool independent_recv_thread = true;
  /// Async: the receiving thread receives once more than this number of gradients was sent.
  int min_send_grad_num_before_recv = 1;
  /// Async: gradients that are sent in one message are summed (true, if CommContext::aggregate is)
  /// or averaged (false), for optimizers that do not take a sum as that many steps.
  bool is_sgd_optimizer = true;
  /// Longest time, in ms, to wait for one call to the servers, a full queue or a barrier.
  int rpc_deadline_ms = 180'000;
  /// No effect except a remark: senders repeat a call until its deadline.
  int rpc_retry_times = 3;
  /// Gradients are merged and then dropped; nothing is sent or received (for measurements).
  bool fake_rpc = false;
  /// False: selected rows are sent directly by the calling thread, neither queued nor merged.
  bool merge_sparse_grad = true;

  int trainers = 1;    ///< number of trainers of the job
  int trainer_id = 0;  ///< of this process, from 0; heter workers are numbered after the trainers
  /// The communicator itself counts steps, as `@PS_STEP_COUNTER@`; a context has to send that var.
  bool need_global_step = false;
  int barrier_table_id = -1;  ///< no effect except a remark: barriers need no table
  std::vector<std::string> pserver_endpoints;  ///< host:port
  /// Threads of this trainer that run training steps (CPU_NUM).
  int cpu_num = 1;
  /// Sync: rounds have their barriers even if no context sends or receives anything, because the
  /// program itself pushes rows.
  bool meets_always = false;
};

/// Remarks are not errors: a value was replaced, or a key has no effect.
using Remarks = std::vector<std::string>;

/// Reads the settings of a mode from strings.
///
/// \param settings  by key: `FLAGS_communicator_<name>`, which takes precedence, or
///     `communicator_<name>`; `trainers`, `trainer_id`, `need_global_step`, `barrier_table_id`,
///     `pserver_endpoints` (comma-separated). Unrelated keys are ignored
/// \param cpu_num   >= 1
/// \param k_steps   geo: default of max_merge_var_num and send_queue_size, > 0
/// \param remarks   receives forced values, unknown communicator keys and settings without effect
/// Errors: kInvalidArgument with key and value for a value that is not a number or is out of range.
StatusOr<CommunicatorOptions> communicator_options(
    CommMode mode, const std::map<std::string, std::string>& settings, int cpu_num, int k_steps,
    Remarks& remarks);

/// Sets the values that a mode forces and checks ranges. Errors: kInvalidArgument naming the field.
Status settle_options(CommMode mode, CommunicatorOptions& options, Remarks& remarks);

/// The settings that are passed on in a mode, as `communicator_<name>` -> text.
std::map<std::string, std::string> communicator_flags(CommMode mode,
                                                      const CommunicatorOptions& options);

}  // namespace millrace::ps
