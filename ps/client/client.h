#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/pause_watch.h"
#include "framework/base/status.h"
#include "ps/client/call_pool.h"
#include "ps/protocol/answers.h"
#include "ps/protocol/pack.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

class KillPoint;
struct Settling;

/// How a trainer communicates with its servers.
struct ClientOptions {
  std::string job;           ///< must equal the job of the servers
  int trainer = 0;           ///< number of this trainer, from 0
  uint64_t incarnation = 0;  ///< 0: chosen at start
  /// Longest time that one call may take, including repeats and waiting for other trainers. Time
  /// for which this process was paused does not count.
  std::chrono::milliseconds deadline{180'000};
  int retries = 3;  ///< how often a lost call is repeated
  /// Pause between a lost call and its repeat; doubles with each repeat, up to half a second.
  std::chrono::milliseconds retry_pause{5};
  /// A call without any response is repeated for this long, regardless of `retries`: a server that
  /// is being restarted, or a proxy in front of it, may accept connections and drop them.
  std::chrono::milliseconds reconnect_timeout{0};
  /// Interval of heartbeats, which show servers that receive no other calls that the trainer is
  /// alive; 0: no heartbeats.
  std::chrono::milliseconds heartbeat{0};
  /// Where the process kills itself, for tests; null: nowhere.
  std::shared_ptr<KillPoint> kill_point = nullptr;
};

/// A trainer's connections to its servers: a channel to each, their epochs, and sequence numbers,
/// so that a server carries out a repeated call only once. Sends a hello to a server before the
/// first call.
///
/// Thread-safety: any thread.
class Client {
 public:
  /// \param transport  may be shared with other users
  Client(std::shared_ptr<Transport> transport, ClientOptions options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  [[nodiscard]] const ClientOptions& options() const { return options_; }
  /// Sets what this trainer knows about its servers, by endpoint; each hello has the facts about
  /// its server. Call it before the first call.
  void set_plan(std::map<std::string, PlanFacts> plan) { plan_ = std::move(plan); }
  /// Sets the endpoints that run blocks for trainers and hold no parameters: barriers and
  /// agreements of the servers leave them out. Call it before the first call.
  void set_heter_workers(std::set<std::string> endpoints) { heter_workers_ = std::move(endpoints); }
  /// Sets the step that subsequent calls name.
  void set_step(int64_t step) { step_ = step; }

  /// One call to one server.
  struct Call {
    Call() = default;
    /// \param message  one of ps/protocol/messages.h
    template <typename Message>
    Call(std::string to, Message message)
        : endpoint(std::move(to)), request(protocol::pack(std::move(message))) {}

    std::string endpoint;
    Request request;  ///< packed; the client sets caller, epoch, step and sequence
    Reply reply;
  };
  /// Errors: kDistributed when the server cannot be reached, does not respond by the deadline, was
  /// restarted, or has a lower term than this client has seen; those of the server, with a note
  /// that names it.
  Status call(Call& call);
  /// Makes several calls in parallel. \returns the error of the first call that failed
  Status call_all(llvm::MutableArrayRef<Call> calls);

  /// The mode of a server. Errors: as call().
  StatusOr<ServerMode> mode_of(const std::string& endpoint);
  /// Parameter servers that this client has contacted, ordered by name.
  [[nodiscard]] std::vector<std::string> endpoints() const;
  /// Agrees with all synchronous servers on the step from which this trainer continues: 0 in a new
  /// job; where servers loaded snapshots, the step of the snapshots (the oldest if they differ; the
  /// other servers go back to it); a future step where this trainer replaces a lost one. Parameters
  /// must be fetched again afterwards. Errors: kDistributed where a server cannot go back that far.
  StatusOr<int64_t> settle();
  /// True once a server has restarted from a snapshot so old that the trainer has to settle()
  /// again.
  [[nodiscard]] bool must_settle() const { return must_settle_; }
  /// Makes must_settle() true: another trainer has learned that a server restarted.
  void require_settling() { must_settle_ = true; }

  /// Reports to all servers that the trainer is done. Servers stay until they have heard so twice,
  /// so that no lost response makes it an error; once all have answered, a server that cannot be
  /// reached any more has ended.
  /// \param stay  wait until all trainers are done, and stay connected to read values; a later call
  ///              without it disconnects
  Status complete(bool stay);

 private:
  struct Server {
    std::shared_ptr<Channel> channel;
    PlanFacts plan;
    std::mutex hello;  ///< held while a hello is sent
    std::atomic<bool> greeted{false};
    std::atomic<uint64_t> epoch{0};
    std::atomic<uint64_t> term{0};  ///< the highest one in its answers
    std::atomic<ServerMode> mode{ServerMode::kSync};
    std::mutex numbers;
    uint64_t sequence = 0;       ///< last number assigned
    std::set<uint64_t> pending;  ///< numbers of calls in progress
    // Only for synchronous servers, whose trainers call from one thread:
    std::atomic<int64_t> sent{0};     ///< send barriers
    std::atomic<int64_t> fetched{0};  ///< fetch barriers
    /// Items of the last send barrier, until parameters arrive.
    std::vector<RequestItem> last_sent;
    /// Calls that bring a restarted server to the step of this trainer. Their sequence numbers stay
    /// the same however often they are tried.
    struct Recovery {
      uint64_t epoch = 0;
      uint64_t fetch_sequence = 0;
      uint64_t send_sequence = 0;
    };
    Recovery recovery;
  };
  /// A server's response to a hello.
  struct Greeting {
    uint64_t epoch = 0;
    protocol::HelloAnswer answer;
  };
  static StatusOr<Greeting> read_greeting(const Reply& reply);
  static uint64_t new_number(Server& server);
  static uint64_t settled_number(Server& server);
  StatusOr<Greeting> say_hello(Server& server, Deadline deadline);
  /// One attempt of settle(). \param again  the trainer has made steps before
  /// \param ahead  how many steps later a replacement joins
  StatusOr<int64_t> agree(llvm::ArrayRef<Server*> servers, bool again, int64_t ahead,
                          Deadline deadline);
  /// The answers of all servers to a hello, in their order.
  StatusOr<std::vector<Greeting>> ask_for_steps(llvm::ArrayRef<Server*> servers, Deadline deadline);
  /// Makes the step of the plan the current one on this side, and on the servers unless all of them
  /// are at it.
  Status continue_at(llvm::ArrayRef<Server*> servers, llvm::ArrayRef<Greeting> greetings,
                     const Settling& plan, Deadline deadline);
  /// Asks all servers again whether one lacks steps that another one had applied. Errors:
  /// kDistributed naming the server.
  Status check_none_lost_steps(llvm::ArrayRef<Server*> servers, int64_t newest, Deadline deadline);
  [[nodiscard]] std::vector<Server*> all_servers() const;
  /// Those that are no heter workers.
  [[nodiscard]] std::vector<Server*> parameter_servers() const;
  /// Those that it has greeted.
  [[nodiscard]] std::vector<Server*> synchronous_servers() const;
  /// Sends the servers the step to which settle() will go, while calls to them still wait.
  void go_back_early(Deadline deadline);
  StatusOr<Server*> server(const std::string& endpoint);
  Status greet(Server& server, Deadline deadline);
  Status exchange(Server& server, Request& request, Deadline deadline, Reply& reply);
  /// Makes one call. Errors: as Channel::call(); kDistributed for an answer of a server of a lower
  /// term than was seen: another one serves in its place.
  static Status ask(Server& server, const Request& request, Deadline deadline, Reply& reply);
  /// Sets the caller, the step and the epoch of a request.
  void address(const Server& server, Request& request) const;
  /// Asks a server that did not respond whether it was restarted, and if so continues with it from
  /// its snapshot.
  /// \returns true if the snapshot includes the send barrier whose response was lost
  /// Errors: kDistributed if the snapshot is too old to continue.
  StatusOr<bool> greet_again(Server& server, Deadline deadline);
  Status recover(Server& server, uint64_t epoch, Deadline deadline);
  void note(Server& server, const Request& request);
  /// True if all servers have answered the send barriers of this trainer.
  [[nodiscard]] bool has_sent_everywhere() const;
  /// Tells all servers that the trainer is done; each server in parallel.
  Status complete_all(const protocol::Complete& message);
  /// Sends a request without a number to servers, in parallel, and returns their answers.
  /// \param earlier  answers of the same servers: only the runs that gave them accept the request
  StatusOr<std::vector<Reply>> ask_all(llvm::ArrayRef<Server*> servers, const Request& request,
                                       Deadline deadline, llvm::ArrayRef<Reply> earlier);
  /// Has all servers of an elastic job agree on the last step of a trainer that one of them lost.
  Status agree_on_loss(const protocol::HelloAnswer::Suspect& lost);
  /// \param is_heartbeat  the server has accepted the plan before
  [[nodiscard]] Request hello_of(Server& server, bool is_heartbeat = false) const;
  void send_heartbeats();
  void send_heartbeat();

  std::shared_ptr<Transport> transport_;
  ClientOptions options_;
  std::map<std::string, PlanFacts> plan_;
  std::set<std::string> heter_workers_;
  PauseWatch pauses_;  ///< a server is not blamed for a deadline that passed during a pause
  std::atomic<int64_t> step_{-1};
  std::atomic<bool> must_settle_{false};
  /// Makes calls, so it has connected to all servers, and does not change the step of servers.
  std::atomic<bool> is_training_{false};
  bool has_completed_ = false;  ///< all servers have heard that it makes no more steps
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Server>> servers_;
  CallPool call_pool_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread heartbeat_thread_;
};

}  // namespace millrace::ps
