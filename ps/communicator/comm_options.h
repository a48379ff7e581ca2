#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::ps {

/// How trainer and servers keep step. The numbers are those of the original.
enum class CommMode : int {
  kSync = 0,       ///< every trainer waits for all others in every step
  kAsync = 1,      ///< gradients leave and parameters arrive while the trainer goes on
  kHalfAsync = 2,  ///< the threads of one trainer wait for each other and for its servers
  kGeo = 3,        ///< trainers update parameters themselves and exchange differences
};

/// The mode of a number. Errors: kInvalidArgument for a number that is none.
StatusOr<CommMode> comm_mode(int number);
/// "sync", "async", "half-async", "geo"
std::string_view comm_mode_name(CommMode mode);

/// Settings of a Communicator; names and defaults are those of the original
/// (spec/ps_runtime.md section 5).
struct CommunicatorOptions {
  /// Most batches of a var that one message takes. In geo: steps from one push to the next. In sync
  /// and half-async always cpu_num.
  int max_merge_var_num = 1;
  /// Batches of a var that may wait to be sent; a trainer that has one more waits itself. In sync
  /// and half-async always cpu_num.
  int send_queue_size = 1;
  /// How long a message that is not full waits for the next batch, in units of 10 ms.
  int send_wait_times = 5;
  /// Threads that send.
  int thread_pool_size = 5;
  /// Async: parameters come by a thread of their own (true), or right after a table's send.
  bool independent_recv_thread = true;
  /// Async: the thread receives when more than this number of gradients was sent.
  int min_send_grad_num_before_recv = 1;
  /// No effect, and a remark: CommContext::aggregate says what merging does.
  bool is_sgd_optimizer = true;
  /// Longest time, in ms, that one call to the servers, a full queue or a barrier may take.
  int rpc_deadline_ms = 180'000;
  /// No effect, and a remark: senders repeat a call until its deadline.
  int rpc_retry_times = 3;
  /// Gradients are merged and then dropped; nothing is sent or received.
  bool fake_rpc = false;
  /// False: selected rows are sent by the thread that brings them, neither queued nor merged.
  bool merge_sparse_grad = true;

  int trainers = 1;    ///< of the job
  int trainer_id = 0;  ///< of this process, from 0; heter workers: behind the trainers
  /// The communicator counts steps itself, as `@PS_STEP_COUNTER@`; a context has to send that.
  bool need_global_step = false;
  int barrier_table_id = -1;                   ///< no effect, and a remark: barriers need no table
  std::vector<std::string> pserver_endpoints;  ///< host:port
  /// Threads of this trainer that run steps (CPU_NUM).
  int cpu_num = 1;
  /// Sync: rounds have their barriers even if no context sends or receives anything, because rows
  /// are pushed by the program itself.
  bool meets_always = false;
};

/// What a remark is about is not an error: a value was replaced, a key has no effect.
using Remarks = std::vector<std::string>;

/// Settings of a mode from strings.
///
/// \param settings  by key: `FLAGS_communicator_<name>`, which wins, or `communicator_<name>`;
///     `trainers`, `trainer_id`, `need_global_step`, `barrier_table_id`, `pserver_endpoints` (comma
///     list). Keys of other things are left alone
/// \param cpu_num   >= 1
/// \param k_steps   geo: default of max_merge_var_num and send_queue_size, > 0
/// \param remarks   told of forced values, unknown communicator keys and what has no effect
/// Errors: kInvalidArgument with key and value for what is no number or out of range.
StatusOr<CommunicatorOptions> communicator_options(
    CommMode mode, const std::map<std::string, std::string>& settings, int cpu_num, int k_steps,
    Remarks& remarks);

/// Forces what a mode forces and checks ranges. Errors: kInvalidArgument naming the field.
Status settle_options(CommMode mode, CommunicatorOptions& options, Remarks& remarks);

/// The settings that a mode passes on, as `communicator_<name>` -> text.
std::map<std::string, std::string> communicator_flags(CommMode mode,
                                                      const CommunicatorOptions& options);

}  // namespace millrace::ps
