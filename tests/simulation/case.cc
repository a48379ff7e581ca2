#include "tests/simulation/case.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace millrace::simulation {
namespace {

constexpr const char* kModes[] = {"sync", "async", "half-async", "geo"};

constexpr Time kSilence = 5 * kSecond;

double seconds(Time time) {
  return static_cast<double>(time) / static_cast<double>(kSecond);
}

Noise make_noise(Random& random) {
  Noise noise;
  if (random.chance(0.3)) return noise;
  noise.longest = random.between(kMillisecond, 20 * kMillisecond);
  noise.slow = random.chance(0.5) ? 0.02 : 0;
  noise.slowest = 500 * kMillisecond;
  static constexpr double kCuts[] = {0, 0.01, 0.05};
  noise.cut = kCuts[random.below(std::size(kCuts))];
  return noise;
}

// Mostly short, so that the job survives; sometimes longer than the time of silence.
Time make_length(Random& random) {
  return random.chance(0.6) ? random.between(0, 2 * kSecond)
                            : random.between(2 * kSecond, 3 * kSilence);
}

Fault make_fault(const Case& job, Random& random) {
  Fault fault;
  const auto roles = static_cast<uint64_t>(job.servers + job.trainers);
  fault.role = static_cast<int>(random.below(roles));
  const bool on_server = fault.role < job.servers;
  fault.at = random.between(0, job.steps * job.longest_step);
  if (random.chance(0.5)) fault.steps = random.between(1, 400);
  static constexpr Fault::Kind kKinds[] = {Fault::Kind::kKill, Fault::Kind::kKill,
                                           Fault::Kind::kPause, Fault::Kind::kCut,
                                           Fault::Kind::kBlock};
  fault.kind = kKinds[random.below(std::size(kKinds))];
  if (fault.kind == Fault::Kind::kPause || fault.kind == Fault::Kind::kBlock)
    fault.length = make_length(random);
  if (fault.kind == Fault::Kind::kBlock) {
    // the other end is of the other kind: servers do not call each other
    fault.other = static_cast<int>(
        on_server
            ? job.servers + static_cast<int>(random.below(static_cast<uint64_t>(job.trainers)))
            : static_cast<int>(random.below(static_cast<uint64_t>(job.servers))));
  }
  if (fault.kind != Fault::Kind::kKill) return fault;
  const bool starts_again = on_server ? job.snapshot_every > 0 : job.elastic;
  if (starts_again && random.chance(0.85)) fault.restart = random.between(0, 2 * kSilence);
  if (on_server && random.chance(0.25)) fault.disk = static_cast<int>(random.between(10, 95));
  return fault;
}

// A trainer is killed while its call waits for a step of the others that is longer than the time of
// silence, and replaced before they have done it.
void replace_while_waiting(Case& job, Random& random) {
  job.mode = Mode::kSync;
  job.elastic = true;
  job.silence = kSilence;
  job.servers = static_cast<int>(1 + random.below(2));
  job.trainers = static_cast<int>(2 + random.below(2));
  job.steps = 6;
  job.longest_step = 15 * kSecond;
  Fault fault;
  fault.kind = Fault::Kind::kKill;
  fault.role = job.servers + static_cast<int>(random.below(static_cast<uint64_t>(job.trainers)));
  fault.at = random.between(0, 40 * kSecond);
  fault.restart = random.between(0, kSilence);
  job.faults = {fault};
}

// A server hears nothing of a trainer for longer than the time of silence, while the others do.
void divide_servers(Case& job, Random& random) {
  job.mode = Mode::kSync;
  job.elastic = true;
  job.silence = kSilence;
  job.servers = static_cast<int>(2 + random.below(3));
  job.trainers = static_cast<int>(2 + random.below(3));
  job.longest_step = random.between(kMillisecond, 300 * kMillisecond);
  Fault fault;
  fault.kind = Fault::Kind::kBlock;
  fault.role = job.servers + static_cast<int>(random.below(static_cast<uint64_t>(job.trainers)));
  fault.other = static_cast<int>(random.below(static_cast<uint64_t>(job.servers)));
  fault.at = random.between(0, job.steps * job.longest_step);
  fault.length = random.between(kSilence, 3 * kSilence);
  job.faults = {fault};
  if (random.chance(0.5)) return;
  // the others cannot ask it for what it did last
  fault.kind = Fault::Kind::kKill;
  fault.at += random.between(0, kSecond);
  job.faults.push_back(fault);
}

}  // namespace

Case make_case(uint64_t seed) {
  Random random(seed * 11 + 7);
  Case job;
  job.seed = seed;
  job.mode = random.chance(0.6) ? Mode::kSync : static_cast<Mode>(1 + random.below(3));
  job.servers = static_cast<int>(1 + random.below(4));
  job.trainers = static_cast<int>(1 + random.below(6));
  job.steps = static_cast<int>(2 + random.below(7));
  job.silence = random.chance(0.3) ? 0 : kSilence;
  job.elastic = job.silence > 0 && random.chance(0.5);
  if (random.chance(0.5)) job.snapshot_every = static_cast<int>(1 + random.below(3));
  job.durable = job.snapshot_every > 0 && random.chance(0.6);
  if (job.mode == Mode::kGeo) job.steps += job.steps % 2;  // what is not pushed is not on servers
  // a step may be longer than the time of silence
  job.longest_step = random.chance(job.elastic ? 0.4 : 0.1)
                         ? random.between(2 * kSecond, 12 * kSecond)
                         : random.between(kMillisecond, 300 * kMillisecond);
  // nothing keeps these trainers together: one that is done waits for the others, not longer than
  // its deadline
  if (job.mode != Mode::kSync)
    job.longest_step = std::min(job.longest_step, job.deadline / job.steps);
  job.noise = make_noise(random);
  const bool replaces = random.chance(0.3);
  const uint64_t faults = random.below(5);
  for (uint64_t i = 0; i < faults; ++i) job.faults.push_back(make_fault(job, random));
  // servers wait forever for a trainer that is gone if they take none for lost
  const bool ends_well = std::ranges::all_of(job.faults, [](const Fault& fault) {
    return fault.kind != Fault::Kind::kKill && fault.length <= 2 * kSecond;
  });
  if (!ends_well) job.silence = kSilence;
  if (replaces) replace_while_waiting(job, random);
  if (!replaces && random.chance(0.15)) divide_servers(job, random);
  return job;
}

bool must_be_survived(const Case& job, const Fault& fault) {
  const bool on_server = fault.role < job.servers;
  switch (fault.kind) {
    case Fault::Kind::kCut:
      return true;
    case Fault::Kind::kPause:
      if (fault.replaced_after >= 0) return false;
      if (on_server) return fault.length <= job.deadline / 3;
      return job.silence == 0 ? fault.length <= job.deadline / 3 : fault.length <= job.silence / 2;
    case Fault::Kind::kBlock:
      return fault.length <= 2 * kSecond;
    case Fault::Kind::kKill:
      if (!on_server) {
        // the others finish, and a replacement that has joined does, too
        return job.mode == Mode::kSync && job.elastic && job.trainers > 1 &&
               std::ranges::count(job.faults, Fault::Kind::kKill, &Fault::kind) == 1;
      }
      return job.mode == Mode::kSync && job.durable && job.snapshot_every == 1 &&
             fault.restart >= 0 && fault.restart <= job.reconnect / 4 && fault.disk == 100 &&
             !fault.torn;
    case Fault::Kind::kDate:
      return true;
    case Fault::Kind::kSuspend:
      return fault.length <= 2 * kSecond && fault.replaced_after < 0;
    case Fault::Kind::kNoEtcd:
    case Fault::Kind::kEtcdDown:
      // calls wait for etcd, so the only such fault may last longer
      return fault.replaced_after < 0 &&
             (fault.length <= 2 * kSecond ||
              (fault.length <= job.deadline / 3 &&
               std::ranges::count(job.faults, Fault::Kind::kDate, &Fault::kind) + 1 ==
                   std::ssize(job.faults)));
  }
  return false;
}

std::string role_name(const Case& job, int role) {
  return role < job.servers ? fmt::format("server {}", role)
                            : fmt::format("trainer {}", role - job.servers);
}

std::string describe(const Case& job) {
  std::string snapshots = "no snapshots";
  if (job.snapshot_every > 0)
    snapshots =
        fmt::format("{}snapshots every {}", job.durable ? "durable " : "", job.snapshot_every);
  return fmt::format(
      "seed {}: {}, {} servers, {} trainers, {} steps of up to {} s{}, {}, silence timeout {} s, "
      "messages take up to {} s, {:.0f} % slow, {:.0f} % of the connections cut{}",
      job.seed, kModes[static_cast<size_t>(job.mode)], job.servers, job.trainers, job.steps,
      seconds(job.longest_step), job.elastic ? ", elastic" : "", snapshots, seconds(job.silence),
      seconds(job.noise.longest), 100 * job.noise.slow, 100 * job.noise.cut,
      job.etcd ? fmt::format(", etcd with leases of {} s, {:.0f} % of its messages lost",
                             seconds(job.lease), 100 * job.etcd_losses)
               : "");
}

namespace {

std::string describe_folder(const Fault& fault) {
  std::string text;
  if (fault.disk < 100) text = fmt::format(" with its folder as of {} %", fault.disk);
  if (fault.torn) text += ", what it wrote last is damaged";
  return text;
}

// Faults of jobs with etcd.
std::string describe_etcd_fault(const Fault& fault, const std::string& role,
                                const std::string& when) {
  static constexpr const char* kWays[] = {"between {} and etcd", "from {} to etcd",
                                          "from etcd to {}"};
  std::string text;
  if (fault.kind == Fault::Kind::kEtcdDown)
    return fmt::format("etcd is down {} for {} s", when, seconds(fault.length));
  if (fault.kind == Fault::Kind::kDate)
    return fmt::format("the date of {} jumps {} by {} s", role, when, seconds(fault.length));
  if (fault.kind == Fault::Kind::kNoEtcd) {
    const std::string way = fmt::format(fmt::runtime(kWays[static_cast<size_t>(fault.way)]), role);
    text = fmt::format("messages {} wait {} for {} s", way, when, seconds(fault.length));
  } else {
    const bool suspended = fault.kind == Fault::Kind::kSuspend;
    text = fmt::format("{} is {} {} for {} s", role, suspended ? "suspended" : "paused", when,
                       seconds(fault.length));
  }
  if (fault.replaced_after < 0) return text;
  return text + fmt::format(", another process starts in its place after {} s, with {} folder{}",
                            seconds(fault.replaced_after),
                            fault.own_folder ? "its own" : "the same", describe_folder(fault));
}

}  // namespace

std::string describe(const Case& job, const Fault& fault) {
  const std::string role = role_name(job, fault.role);
  const std::string when =
      fmt::format("at {} s + {} switch points", seconds(fault.at), fault.steps);
  switch (fault.kind) {
    case Fault::Kind::kKill:
      return fmt::format("{} is killed {}{}{}", role, when,
                         fault.restart < 0
                             ? ", for good"
                             : fmt::format(", starts again {} s later", seconds(fault.restart)),
                         describe_folder(fault));
    case Fault::Kind::kCut:
      return fmt::format("all connections of {} end {}", role, when);
    case Fault::Kind::kBlock:
      return fmt::format("messages from {} to {} wait {} for {} s", role,
                         role_name(job, fault.other), when, seconds(fault.length));
    default:
      return describe_etcd_fault(fault, role, when);
  }
}

}  // namespace millrace::simulation
