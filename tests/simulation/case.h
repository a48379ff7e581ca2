#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/scheduler.h"

namespace millrace::simulation {

enum class Mode : uint8_t { kSync, kAsync, kHalfAsync, kGeo };

/// Something that goes wrong in a run.
struct Fault {
  enum class Kind : uint8_t {
    kKill,      ///< a process ends without notice; it may be started again
    kPause,     ///< a process does not run
    kCut,       ///< all connections of a process end
    kBlock,     ///< messages of one direction between two processes wait
    kSuspend,   ///< a machine is suspended: its process does not run, its monotonic clock stands
    kNoEtcd,    ///< messages between a process and etcd wait
    kEtcdDown,  ///< all members of etcd stop, and start again
    kDate,      ///< the date of a process jumps
  };
  /// kNoEtcd: which messages wait.
  enum class Way : uint8_t { kBoth, kToEtcd, kFromEtcd };
  Kind kind = Kind::kCut;
  int role = 0;   ///< index of a server, or number of servers + index of a trainer
  int other = 0;  ///< kBlock: the role that does not receive
  Time at = 0;
  int64_t steps = 0;  ///< it happens this many switch points after `at`
  Time length = 0;    ///< kPause, kBlock, kSuspend, kNoEtcd, kEtcdDown; kDate: the jump
  Time restart = -1;  ///< kKill: when the process is started again, after `at`; below 0: never
  /// kKill of a server: it starts again with its folder as it was when the run had made this part
  /// of its time until the kill, in percent; 100: as it is.
  int disk = 100;
  /// kKill of a server: what it wrote last to its folder is damaged, although it was synced.
  bool torn = false;
  Way way = Way::kBoth;
  /// kPause, kSuspend, kNoEtcd of a server: when another process is started in its place, after
  /// `at`, though the server lives; below 0: never.
  Time replaced_after = -1;
  /// The other process has a folder of its own, as of `disk` percent; else the same folder, whose
  /// lock the server has lost.
  bool own_folder = false;
};

/// A job and what goes wrong in it; all of it follows from a seed.
struct Case {
  uint64_t seed = 0;
  Mode mode = Mode::kSync;
  int servers = 1;
  int trainers = 1;
  int steps = 4;
  bool elastic = false;
  int snapshot_every = 0;  ///< steps; asynchronous servers: 100 ms each
  bool durable = false;    ///< snapshots
  Time silence = 0;        ///< after which servers take a trainer for lost; 0: never
  Time deadline = 30 * kSecond;
  Time reconnect = 20 * kSecond;
  Time longest_step = 100 * kMillisecond;  ///< time that a trainer computes
  bool etcd = false;                       ///< servers are found through etcd
  Time lease = 0;                          ///< of a server in etcd
  double etcd_losses = 0;                  ///< probability that a message to or from etcd is lost
  bool is_fenced = true;  ///< false: servers never ask whether another one has taken their name
  Noise noise;
  std::vector<Fault> faults;
};

/// The case of a seed.
Case make_case(uint64_t seed);
/// The case of a seed with etcd; other seeds than those of make_case().
Case make_etcd_case(uint64_t seed);

/// True for a fault after which the job must end well on all processes.
bool must_be_survived(const Case& job, const Fault& fault);

/// "server 1", "trainer 0".
std::string role_name(const Case& job, int role);
std::string describe(const Case& job);
std::string describe(const Case& job, const Fault& fault);

}  // namespace millrace::simulation
