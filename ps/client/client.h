#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "ps/client/crew.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

class KillPoint;

/// How a trainer deals with its servers.
struct ClientOptions {
  std::string job;           ///< must be that of the servers
  int trainer = 0;           ///< own number, from 0
  uint64_t incarnation = 0;  ///< 0: chosen at start
  /// Longest time that one call may take, repeats and waiting for the others included.
  std::chrono::milliseconds deadline{180'000};
  int retries = 3;  ///< repeats of a call that was lost
  /// Between a lost call and its repeat; doubled from one to the next, up to half a second.
  std::chrono::milliseconds retry_pause{5};
  /// A call that nobody has answered is repeated for so long, however many repeats that takes: a
  /// server that is started anew, or what stands before it, may take connections and drop them.
  std::chrono::milliseconds reconnect_timeout{0};
  /// How often servers that hear nothing else are told that the trainer is there; 0: never.
  std::chrono::milliseconds heartbeat{0};
  std::shared_ptr<KillPoint> kill_point =
      nullptr;  ///< where the process ends itself; null: nowhere
};

/// What a trainer knows of its servers: a channel to each, their epochs, and sequence numbers, so
/// that a call that is repeated is carried out once. Says hello to a server before the first call.
///
/// Thread-safety: any thread.
class Client {
 public:
  /// \param transport  shared with whoever else uses it
  Client(std::shared_ptr<Transport> transport, ClientOptions options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  [[nodiscard]] const ClientOptions& options() const { return options_; }
  /// The step that calls name from now on.
  void set_step(int64_t step) { step_ = step; }

  /// One call to one server.
  struct Call {
    std::string endpoint;
    Method method = Method::kGet;
    int64_t number = 0;
    std::string text;
    std::vector<RequestItem> items;
    Reply reply;
  };
  /// Errors: kDistributed when the server cannot be reached, does not answer by the deadline, or
  /// was started anew; those of the server, which a note names.
  Status call(Call& call);
  /// Several calls side by side. \returns the error of the first that failed
  Status call_all(llvm::MutableArrayRef<Call> calls);

  /// How a server works: 0 sync, 1 async, 3 geo. Errors: as call().
  StatusOr<int> mode_of(const std::string& endpoint);
  /// Servers that were spoken to, in order of their names.
  [[nodiscard]] std::vector<std::string> endpoints() const;
  /// Agrees with all synchronous servers on the step that this trainer goes on with: 0 in a new
  /// job; the step of the snapshots where servers took some up, the oldest if they differ, to which
  /// the others go back; a step to come where the trainer replaces a lost one. Parameters have to
  /// be fetched anew afterwards. Errors: kDistributed where a server cannot go back so far.
  StatusOr<int64_t> settle();
  /// True once a server has come back so old that the trainer has to settle() again.
  [[nodiscard]] bool must_settle() const { return must_settle_; }

  /// Tells all servers that the trainer is done.
  /// \param stay  wait until all trainers are, and be able to read from then on; a later call
  ///              without it ends that
  Status complete(bool stay);

 private:
  struct Server {
    std::shared_ptr<Channel> channel;
    std::mutex hello;  ///< held while saying hello
    bool greeted = false;
    std::atomic<uint64_t> epoch{0};
    std::atomic<int> mode{0};
    std::mutex numbers;
    uint64_t sequence = 0;       ///< last number that was given out
    std::set<uint64_t> pending;  ///< numbers of calls that are not over
    // of synchronous servers, whose trainers call from one thread
    std::atomic<int64_t> sent{0};        ///< send barriers
    std::atomic<int64_t> fetched{0};     ///< fetch barriers
    std::vector<RequestItem> last_sent;  ///< with the last send barrier, until parameters came
    /// Calls that bring a server which was started anew to where this trainer is; the same ones
    /// however often they are tried.
    struct Recovery {
      uint64_t epoch = 0;
      uint64_t fetch_sequence = 0;
      uint64_t send_sequence = 0;
    };
    Recovery recovery;
  };
  /// What a server answers to a hello.
  struct Greeting {
    uint64_t epoch = 0;
    int mode = 0;
    int64_t sent = 0;      ///< send barriers of this trainer
    int64_t applied = 0;   ///< steps
    bool joins = false;    ///< this trainer takes the place of a lost one
    bool settles = false;  ///< others went back, and so has it
  };
  static StatusOr<Greeting> read_greeting(const Reply& reply);
  static uint64_t new_number(Server& server);
  static uint64_t settled_number(Server& server);
  StatusOr<Greeting> say_hello(Server& server, Deadline deadline);
  StatusOr<int64_t> agree(llvm::ArrayRef<Server*> servers, bool again, int64_t ahead,
                          Deadline deadline);
  StatusOr<Server*> server(const std::string& endpoint);
  Status greet(Server& server, Deadline deadline);
  Status exchange(Server& server, const Request& request, Deadline deadline, Reply& reply);
  /// Asks a server that did not answer whether it was started anew, and if so goes on with it from
  /// its snapshot.
  /// \returns true if the snapshot has the send barrier whose answer did not come
  /// Errors: kDistributed if its snapshot is too old for that.
  StatusOr<bool> greet_again(Server& server, Deadline deadline);
  Status recover(Server& server, uint64_t epoch, Deadline deadline);
  void note(Server& server, const Request& request);
  [[nodiscard]] Request hello_of(Server& server) const;
  void beat();

  std::shared_ptr<Transport> transport_;
  ClientOptions options_;
  std::atomic<int64_t> step_{-1};
  std::atomic<bool> must_settle_{false};
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Server>> servers_;
  Crew crew_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread heart_;
};

}  // namespace millrace::ps
