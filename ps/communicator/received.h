#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/scope.h"
#include "framework/tensor/value.h"
#include "ps/communicator/comm_context.h"
#include "ps/communicator/sender.h"

namespace millrace::ps {

/// Parameters that were received from the servers and that the trainer has not adopted yet.
///
/// Thread-safety: receive() may be called concurrently (calls for the same context run one after
/// the other); adopt() from any thread.
class Received {
 public:
  /// \param contexts  must outlive this
  Received(const CommContexts& contexts, Sender& sender);
  Received(const Received&) = delete;
  Received& operator=(const Received&) = delete;

  /// Receives one context (by position in the map), or all.
  Status receive(size_t context, Deadline deadline);
  Status receive_all(Deadline deadline);
  /// Receives the contexts of a typed table. Errors: kNotFound if there is none.
  Status receive_table(int table_id, Deadline deadline);
  /// receive_all(), unless another thread is running it: then that thread repeats it once.
  Status receive_all_once(Deadline deadline);

  /// Copies a new value, if there is one, into a var. \returns whether there was one; false for
  /// unknown vars.
  /// Errors: kExecution if type or dims differ from those of the var.
  StatusOr<bool> adopt(std::string_view var, Value& live);
  /// The same for all vars of the scope.
  Status adopt_all(Scope& scope);
  /// The same, while no other thread accesses the scope: where a var is the only owner of its
  /// memory, memory is swapped instead of copied.
  Status exchange_all(Scope& scope);
  /// Receives directly into the scope, for the contexts that `wanted` selects.
  Status receive_into(Scope& scope, Deadline deadline,
                      const std::function<bool(const CommContext&)>& wanted);

  [[nodiscard]] size_t context_count() const { return contexts_.size(); }
  /// Number of contexts received so far.
  [[nodiscard]] int64_t count() const;

 private:
  struct Context {
    const CommContext* context = nullptr;
    std::vector<std::string> vars;
    std::mutex receiving;
    std::vector<Value> arriving;  ///< guarded by `receiving`
    // Guarded by Received::mutex_:
    std::vector<Value> fresh;
    std::vector<bool> is_fresh;
  };
  struct Place {
    Context* context;
    size_t index;
  };
  // Puts the received value into the var of that name, and leaves memory to be reused in its place.
  using Put = Status (*)(std::string_view var, Value& from, Value& live);

  StatusOr<bool> take(std::string_view var, Value& live, Put put);
  Status take_all(Scope& scope, Put put);

  Sender& sender_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::map<std::string, Place, std::less<>> places_;
  bool receiving_all_ = false;
  bool again_ = false;
  int64_t count_ = 0;
};

/// A thread that receives whenever more than a minimum number of gradients was sent. If the trainer
/// has not adopted the last received values yet, it receives again only after all gradients of a
/// step were sent.
class ReceiveThread {
 public:
  /// \param of_a_step  number of gradients that a step sends
  /// \param receive    called from the thread; not called again after an error
  ReceiveThread(int64_t minimum, int64_t of_a_step, std::function<Status()> receive);
  ReceiveThread(const ReceiveThread&) = delete;
  ReceiveThread& operator=(const ReceiveThread&) = delete;
  /// Ends the thread, after the call in progress has returned.
  ~ReceiveThread();

  /// Reports that this number of gradients was sent.
  void sent(int64_t gradients);
  /// Reports that the trainer has adopted the received values.
  void taken();

 private:
  void work();
  [[nodiscard]] bool is_due() const {
    return sent_ > minimum_ && (is_taken_ || sent_ >= of_a_step_);
  }

  const int64_t minimum_;
  const int64_t of_a_step_;
  const std::function<Status()> receive_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int64_t sent_ = 0;
  bool is_taken_ = true;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace millrace::ps
