#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "framework/base/status.h"
#include "tests/simulation/scheduler.h"

namespace millrace::etcd {
class Compare;
class RequestOp;
}  // namespace millrace::etcd

namespace millrace::simulation {

/// What the members of an etcd cluster agree on: keys, revisions, leases in virtual time. It
/// carries out one call at a time, so all calls are in one order.
///
/// A lease never ends before its time to live has passed since its last renewal; its keys are
/// deleted up to a second later. Like etcd, it renews no lease whose time has passed, and gives all
/// leases their whole time again when the cluster has been down. Not thread-safe.
class EtcdStore {
 public:
  using ProcessId = Scheduler::ProcessId;
  static constexpr int64_t kFirstLease = 1001;  ///< the next ones follow

  explicit EtcdStore(uint64_t seed) : random_(seed) {}

  /// Carries out a call of the methods that discovery uses (proto/etcd.proto).
  /// \param caller  the process that makes it
  /// \returns the message of the response
  /// Errors: kExecution, as etcd refuses a call: a put under a lease that does not exist;
  /// kUnimplemented for other methods.
  StatusOr<std::string> carry_out(const std::string& method, const std::string& message,
                                  ProcessId caller, Time now);
  /// The cluster was down until now.
  void was_down(Time now);

  /// When another process took a name that this one had registered; kNever if none did.
  [[nodiscard]] Time taken_from(ProcessId process) const;

 private:
  struct Entry {
    std::string value;
    int64_t created = 0;  ///< revision
    int64_t changed = 0;  ///< revision
    int64_t lease = 0;
  };
  struct Lease {
    Time length = 0;
    Time ends_at = 0;     ///< it cannot be renewed then
    Time removed_at = 0;  ///< its keys are deleted then
  };

  void renew(Lease& lease, Time now);
  void remove_ended(Time now);
  void remove(int64_t lease);
  [[nodiscard]] bool holds(const etcd::Compare& compare) const;
  [[nodiscard]] bool may_put(const etcd::RequestOp& op, Time now) const;
  void put(const etcd::RequestOp& op, int64_t revision, ProcessId caller, Time now);

  StatusOr<std::string> range(const std::string& message) const;
  StatusOr<std::string> transact(const std::string& message, ProcessId caller, Time now);
  StatusOr<std::string> grant(const std::string& message, Time now);
  StatusOr<std::string> revoke(const std::string& message);
  StatusOr<std::string> keep_alive(const std::string& message, Time now);

  Random random_;
  std::map<std::string, Entry> entries_;
  std::map<int64_t, Lease> leases_;
  int64_t revision_ = 1;
  int64_t last_lease_ = kFirstLease - 1;
  std::map<std::string, ProcessId> owners_;  ///< by name: the last process that registered it
  std::map<ProcessId, Time> taken_;
};

}  // namespace millrace::simulation
