#include <algorithm>
#include <iterator>

#include "tests/simulation/case.h"

namespace millrace::simulation {
namespace etcd_case {
namespace {

constexpr Time kSilence = 5 * kSecond;

void set_time(const Case& job, Random& random, Fault& fault) {
  fault.at = random.between(0, job.steps * job.longest_step);
  if (random.chance(0.5)) fault.steps = random.between(1, 400);
}

Fault::Way any_way(Random& random) {
  static constexpr Fault::Way kWays[] = {Fault::Way::kBoth, Fault::Way::kToEtcd,
                                         Fault::Way::kFromEtcd};
  return kWays[random.below(std::size(kWays))];
}

// A server is not heard of for longer than its lease, another process takes its place, and then it
// continues.
Fault supersede(const Case& job, Random& random) {
  Fault fault;
  fault.role = static_cast<int>(random.below(static_cast<uint64_t>(job.servers)));
  set_time(job, random, fault);
  const double kind = static_cast<double>(random.below(100)) / 100;
  fault.kind = kind < 0.4   ? Fault::Kind::kPause
               : kind < 0.6 ? Fault::Kind::kSuspend
                            : Fault::Kind::kNoEtcd;
  fault.way = any_way(random);
  fault.length = random.between(job.lease / 2, job.lease + 8 * kSecond);
  fault.replaced_after = random.between(0, fault.length);
  // a server that runs keeps the lock of its folder
  fault.own_folder = fault.kind == Fault::Kind::kNoEtcd || random.chance(0.4);
  if (fault.own_folder && random.chance(0.5)) fault.disk = static_cast<int>(random.between(10, 95));
  return fault;
}

// Etcd or the date are wrong for a while.
Fault disturb(const Case& job, Random& random) {
  Fault fault;
  const auto roles = static_cast<uint64_t>(job.servers + job.trainers);
  fault.role = static_cast<int>(random.below(roles));
  set_time(job, random, fault);
  static constexpr Fault::Kind kKinds[] = {Fault::Kind::kNoEtcd, Fault::Kind::kEtcdDown,
                                           Fault::Kind::kDate, Fault::Kind::kSuspend};
  fault.kind = kKinds[random.below(std::size(kKinds))];
  fault.way = any_way(random);
  fault.length = random.chance(0.5) ? random.between(0, 2 * kSecond)
                                    : random.between(2 * kSecond, job.lease + 8 * kSecond);
  if (fault.kind == Fault::Kind::kDate)
    fault.length = random.between(-3600 * kSecond, 3600 * kSecond);
  return fault;
}

}  // namespace
}  // namespace etcd_case

Case make_etcd_case(uint64_t seed) {
  Case job = make_case(seed);
  Random random(seed * 13 + 9);
  job.etcd = true;
  job.lease = random.between(2, 5) * kSecond;
  static constexpr double kLosses[] = {0, 0.02, 0.1};
  job.etcd_losses = kLosses[random.below(std::size(kLosses))];
  std::erase_if(job.faults, [&](const Fault&) { return random.chance(0.6); });
  for (Fault& fault : job.faults)
    fault.torn = fault.kind == Fault::Kind::kKill && fault.role < job.servers && random.chance(0.3);
  if (random.chance(0.65)) job.faults.push_back(etcd_case::supersede(job, random));
  const uint64_t others = random.below(3);
  for (uint64_t i = 0; i < others; ++i) job.faults.push_back(etcd_case::disturb(job, random));
  // servers wait forever for a trainer that is gone if they take none for lost
  job.silence = etcd_case::kSilence;
  return job;
}

}  // namespace millrace::simulation
