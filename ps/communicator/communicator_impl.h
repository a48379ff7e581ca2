#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/pause_watch.h"
#include "ps/communicator/communicator.h"
#include "ps/communicator/geo.h"
#include "ps/communicator/received.h"
#include "ps/communicator/send_lanes.h"

namespace millrace::ps {

/// The implementation of the Communicator; only for its own source files.
class Communicator::Impl {
 public:
  Impl(CommMode mode, CommunicatorOptions options, Remarks remarks, std::shared_ptr<Sender> sender)
      : mode_(mode),
        options_(std::move(options)),
        remarks_(std::move(remarks)),
        sender_(std::move(sender)) {}
  ~Impl() {
    receive_thread_.reset();
    lanes_.reset();
  }

  Status init(CommContexts send, CommContexts receive);
  Status start(Scope* scope);
  Status stop();
  Status send(std::string_view var, const Value* from, Value* owned);
  Status barrier();
  Status count_step();
  Status leave();
  void set_trigger(int threads);
  Status finish_step(Scope& scope);
  Status receive_into(Scope& scope, const std::function<bool(const CommContext&)>& wanted);
  Status adopt(Scope& scope);
  Status init_params(Scope& scope);
  Status push_sparse_param(std::string_view var, int table_id, Scope& scope);
  [[nodiscard]] Counts counts() const;

  const CommMode mode_;
  const CommunicatorOptions options_;
  Remarks remarks_;
  CommContexts send_contexts_;
  CommContexts receive_contexts_;
  std::unique_ptr<Received> received_;
  std::atomic<bool> running_ = false;

  /// The lane that sends a var, and the var's index in it.
  struct Place {
    size_t lane = 0;
    size_t var = 0;
    const CommContext* context = nullptr;
  };
  std::map<std::string, Place, std::less<>> places_;

 private:
  void average_gradients();
  [[nodiscard]] Deadline deadline() const {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.rpc_deadline_ms);
  }
  [[nodiscard]] bool waits_for_threads() const {
    return mode_ == CommMode::kSync || mode_ == CommMode::kHalfAsync;
  }
  [[nodiscard]] LaneOptions lane_options() const;
  Status send_messages(std::span<const SendLanes::Message> messages);
  Status send_directly(const Place& place, const Value* from, Value* owned);
  Status push_deltas(Scope& scope);
  Status run_round(int batches);
  Status finish_round(std::unique_lock<std::mutex>& lock);

  std::shared_ptr<Sender> sender_;
  std::vector<const CommContext*> lane_contexts_;
  std::unique_ptr<Geo> geo_;
  std::unique_ptr<SendLanes> lanes_;
  std::unique_ptr<ReceiveThread> receive_thread_;
  std::atomic<int64_t> direct_sends_ = 0;
  int64_t steps_ = 0;
  int64_t pushes_ = 0;

  const PauseWatch pauses_;  ///< threads are not late while this process is paused
  std::mutex barrier_mutex_;
  std::condition_variable barrier_changed_;
  int trigger_ = 1;  ///< threads that a round waits for; 0: no threads are left, no round begins
  int arrived_ = 0;
  bool in_round_ = false;
  int64_t round_ = 0;
};

}  // namespace millrace::ps
