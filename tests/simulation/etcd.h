#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/transport/transport.h"
#include "tests/simulation/etcd_store.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scheduler.h"

namespace millrace::simulation {

/// An etcd cluster of two members in a simulated network, and the transport of processes that find
/// each other there. Above the members, the product's own code runs: leases, terms, fences.
///
/// Requests and responses are delayed like other messages, wait while a direction between a process
/// and the cluster is blocked, and are lost before or after the call takes effect. A call that its
/// caller has given up may take effect later. Used by simulated threads only.
class Etcd {
 public:
  using ProcessId = Scheduler::ProcessId;

  /// \param lost  probability that a request or its response is lost
  Etcd(Scheduler& scheduler, Network& network, uint64_t seed, double lost);
  Etcd(const Etcd&) = delete;
  Etcd& operator=(const Etcd&) = delete;

  /// How a process takes part in a job.
  struct Place {
    std::string listen_at;     ///< of a server
    Time lease = 5 * kSecond;  ///< time to live of its entry
    Time patience = 0;         ///< for a server that is absent, and for a name that is taken
    bool is_fenced = true;     ///< false: a server never asks whether it still has its name
    std::function<void(const std::string&)> log;
  };
  /// The transport of the running process.
  StatusOr<std::shared_ptr<ps::Transport>> transport(ProcessId process, const Place& place);

  /// The process of the cluster, for Network::block().
  [[nodiscard]] ProcessId process() const { return process_; }
  /// Stops the cluster, or starts it again.
  void set_down(bool down);
  /// When another process took a name that this one had registered; kNever if none did.
  [[nodiscard]] Time taken_from(ProcessId process) const { return store_.taken_from(process); }

 private:
  class Member;
  struct Call;

  void carry_out(const std::shared_ptr<Call>& call);

  Scheduler& scheduler_;
  Network& network_;
  Random random_;
  double lost_;
  EtcdStore store_;
  ProcessId process_;
};

}  // namespace millrace::simulation
