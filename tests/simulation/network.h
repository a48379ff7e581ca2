#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "ps/transport/message.h"
#include "ps/transport/transport.h"
#include "tests/simulation/scheduler.h"

namespace millrace::simulation {

/// What happens to calls without any other fault.
struct Noise {
  Time shortest = 50 * kMicrosecond;  ///< of a message
  Time longest = 2 * kMillisecond;
  double slow = 0;  ///< probability that a message takes `slowest`, at most
  Time slowest = 0;
  double cut = 0;  ///< probability that a connection ends during a call
};

/// The network between simulated processes, with a connection per call in progress, as the TCP
/// transport has: messages of different calls overtake each other.
///
/// A connection ends before the request arrives, or before the response does. While a direction
/// between two processes is blocked, messages wait, as TCP repeats what was lost. The endpoint of a
/// killed process resets connections. Not thread-safe; used by simulated threads only.
class Network {
 public:
  Network(Scheduler& scheduler, uint64_t seed, Noise noise);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// The transport of one process. \param reconnect  how long it looks for a server whose
  ///     connection broke
  /// \param short_first  it looks no longer for a server to which it had no connection yet
  std::shared_ptr<ps::Transport> transport(Scheduler::ProcessId process, Time reconnect,
                                           bool short_first = false);
  /// Opens a connection and closes it. Errors: kDistributed if no process listens there.
  Status probe(Scheduler::ProcessId process, const std::string& endpoint, ps::Deadline deadline);

  /// Blocks messages of one direction until that time.
  void block(Scheduler::ProcessId from, Scheduler::ProcessId to, Time until);
  /// Ends all connections of a process.
  void cut(Scheduler::ProcessId process);
  /// Ends what a killed process, or one that has ended, had open.
  void end(Scheduler::ProcessId process);
  /// True if a process listens there.
  [[nodiscard]] bool listens(const std::string& endpoint) const;
  void set_noise(const Noise& noise) { noise_ = noise; }
  /// When a message that is sent now arrives.
  [[nodiscard]] Time arrival(Scheduler::ProcessId from, Scheduler::ProcessId to);
  /// A call that a server has carried out, or refused.
  struct Served {
    Scheduler::ProcessId server = 0;
    const ps::Request& request;
    Time begun = 0;          ///< when it arrived
    Time paused_before = 0;  ///< how long the server had been paused by then
    const Status& result;
  };
  /// Called in the server's process when a call has ended.
  void watch(std::function<void(const Served&)> watcher) { watcher_ = std::move(watcher); }
  /// The virtual time of a deadline of the running process.
  static Time time_of(ps::Deadline deadline, Time now);

 private:
  class SimulatedChannel;
  class SimulatedListener;
  class SimulatedTransport;
  struct Exchange;
  struct Place;

  [[nodiscard]] Time delay();
  [[nodiscard]] Time blocked_until(Scheduler::ProcessId from, Scheduler::ProcessId to) const;
  void deliver(const std::shared_ptr<Exchange>& exchange);
  void lose(Exchange& exchange);
  void close(Place& place);

  Scheduler& scheduler_;
  Random random_;
  Noise noise_;
  std::map<std::string, std::shared_ptr<Place>> places_;
  std::map<std::pair<Scheduler::ProcessId, Scheduler::ProcessId>, Time> blocked_;
  std::vector<std::weak_ptr<Exchange>> exchanges_;
  std::function<void(const Served&)> watcher_;
};

}  // namespace millrace::simulation
