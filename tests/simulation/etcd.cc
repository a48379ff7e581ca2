#include "tests/simulation/etcd.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ps/discovery/directory.h"
#include "ps/discovery/discovering_transport.h"
#include "ps/discovery/etcd.h"
#include "ps/discovery/etcd_member.h"

namespace millrace::simulation {
namespace {

using std::chrono::milliseconds;

// How long a connection is retried before etcd is asked for another address, as in jobs/.
constexpr Time kLookAgain = kSecond;

// A directory whose processes never ask whether they still have their names.
class Unfenced final : public ps::Directory {
 public:
  explicit Unfenced(std::unique_ptr<ps::Directory> inner) : inner_(std::move(inner)) {}

  StatusOr<uint64_t> announce(const std::string& name, const std::string& address, uint64_t least,
                              ps::Deadline deadline) override {
    return inner_->announce(name, address, least, deadline);
  }
  StatusOr<bool> still_has(const std::string& /*name*/, ps::Deadline /*deadline*/) override {
    return true;
  }
  void watch(const std::string& /*name*/, std::function<void()> /*lost*/) override {}
  void finish(const std::string& name) override { inner_->finish(name); }
  StatusOr<std::optional<std::string>> find(const std::string& name,
                                            ps::Deadline deadline) override {
    return inner_->find(name, deadline);
  }
  StatusOr<std::vector<Entry>> list(ps::Deadline deadline) override {
    return inner_->list(deadline);
  }

 private:
  std::unique_ptr<ps::Directory> inner_;
};

}  // namespace

/// A call in progress, whose memory caller and cluster share.
struct Etcd::Call {
  ProcessId caller = 0;
  ps::EtcdRequest request;
  bool lost_before = false;  ///< the request does not arrive
  bool lost_after = false;   ///< the response does not arrive
  bool given_up = false;
  Time done_at = kNever;  ///< when the caller has the result
  StatusOr<std::string> result = Status(StatusCode::kDistributed, "the connection was lost");
};

class Etcd::Member final : public ps::EtcdMember {
 public:
  Member(Etcd& etcd, ProcessId caller, std::string endpoint)
      : etcd_(etcd), caller_(caller), endpoint_(std::move(endpoint)) {}

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }

  Status call(const ps::EtcdRequest& request, ps::Deadline deadline,
              std::string& response) override {
    Scheduler& scheduler = etcd_.scheduler_;
    const Time until = Network::time_of(deadline, scheduler.now());
    auto call = std::make_shared<Call>();
    call->caller = caller_;
    call->request = request;
    if (etcd_.random_.chance(etcd_.lost_))
      (etcd_.random_.chance(0.5) ? call->lost_before : call->lost_after) = true;
    scheduler.spawn(etcd_.process_, [etcd = &etcd_, call] { etcd->carry_out(call); });
    while (scheduler.now() < std::min(call->done_at, until))
      scheduler.block(call.get(), std::min(call->done_at, until));
    if (scheduler.now() < call->done_at) {
      call->given_up = true;
      return {StatusCode::kDistributed, "no response in time"};
    }
    if (!call->result.ok()) return call->result.status();
    response = *call->result;
    return Ok();
  }

 private:
  Etcd& etcd_;
  ProcessId caller_;
  std::string endpoint_;
};

Etcd::Etcd(Scheduler& scheduler, Network& network, uint64_t seed, double lost)
    : scheduler_(scheduler),
      network_(network),
      random_(seed),
      lost_(lost),
      store_(seed + 1),
      process_(scheduler.add_process("etcd")) {}

// Runs in a thread of the cluster, so a call of a killed process still takes effect, and none does
// while the cluster is down.
void Etcd::carry_out(const std::shared_ptr<Call>& call) {
  scheduler_.sleep_until(network_.arrival(call->caller, process_));
  // the caller tells the member that it has given up, but that may be too late
  const bool dropped = call->given_up && random_.chance(0.5);
  if (!call->lost_before && !dropped) {
    StatusOr<std::string> result = store_.carry_out(call->request.method, call->request.message,
                                                    call->caller, scheduler_.now());
    scheduler_.note(fmt::format("etcd {} of {}: {}", call->request.method,
                                scheduler_.name_of(call->caller),
                                result.ok() ? std::string_view("ok") : "refused"));
    if (!call->lost_after) call->result = std::move(result);
  }
  call->done_at = network_.arrival(process_, call->caller);
  scheduler_.wake_all(call.get());
}

void Etcd::set_down(bool down) {
  scheduler_.pause(process_, down);
  if (!down) store_.was_down(scheduler_.now());
}

StatusOr<std::shared_ptr<ps::Transport>> Etcd::transport(ProcessId process, const Place& place) {
  ps::EtcdOptions options;
  options.job = "simulated";
  options.lease = std::chrono::seconds(place.lease / kSecond);
  options.log = place.log;
  ps::EtcdMembers members;
  for (const char* endpoint : {"127.0.0.1:2379", "127.0.0.1:2380"})
    members.push_back(std::make_unique<Member>(*this, process, endpoint));
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::Directory> directory,
                            ps::make_etcd_directory(options, std::move(members)));
  if (!place.is_fenced) directory = std::make_unique<Unfenced>(std::move(directory));
  ps::DiscoveryOptions discovery;
  discovery.place = {place.listen_at, place.listen_at};
  discovery.patience = milliseconds(place.patience / kMillisecond);
  discovery.probe = [this, process](const std::string& address, ps::Deadline deadline) {
    return network_.probe(process, address, deadline);
  };
  return ps::make_discovering_transport(network_.transport(process, kLookAgain, true),
                                        std::move(directory), discovery);
}

}  // namespace millrace::simulation
