#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "ps/client/client.h"
#include "ps/client/decisions.h"
#include "ps/transport/epoch.h"

// Heartbeats of a trainer, and what it does about a lost trainer that it hears of by them.
namespace millrace::ps {

StatusOr<std::vector<Reply>> Client::ask_all(llvm::ArrayRef<Server*> servers,
                                             const Request& request, Deadline deadline,
                                             llvm::ArrayRef<Reply> earlier) {
  std::vector<Status> results(servers.size());
  std::vector<Reply> replies(servers.size());
  call_pool_.run(servers.size(), [&](size_t i) {
    Request own = request;
    address(*servers[i], own);
    if (!earlier.empty()) own.epoch = earlier[i].epoch;
    results[i] = ask(*servers[i], own, deadline, replies[i]);
    // a server that was started again may learn of it before a call of this trainer greets it
    const bool is_other_run = replies[i].epoch != 0 && replies[i].epoch != own.epoch;
    if (results[i].ok() || !earlier.empty() || !is_other_run) return;
    own.epoch = any_run_of(own.epoch);
    results[i] = ask(*servers[i], own, deadline, replies[i]);
  });
  for (Status& result : results) MILLRACE_RETURN_IF_ERROR(std::move(result));
  return replies;
}

// Several trainers may do this at once: what the servers answer does not change once each of them
// has stopped serving the lost trainer.
Status Client::agree_on_loss(const protocol::HelloAnswer::Suspect& lost) {
  // must not take so long that servers miss the next heartbeats
  const auto deadline = [&] { return std::chrono::steady_clock::now() + options_.heartbeat / 2; };
  const std::vector<Server*> servers = parameter_servers();
  protocol::Loss loss{.trainer = lost.trainer, .incarnation = lost.incarnation};
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Reply> replies,
                            ask_all(servers, protocol::pack(loss), deadline(), {}));
  std::vector<protocol::LossAnswer> answers;
  for (const Reply& reply : replies) {
    MILLRACE_ASSIGN_OR_RETURN(answers.emplace_back(), protocol::loss_answer(reply));
  }
  loss.steps = last_step_of(answers);
  // a server that was restarted or has gone back since has not answered for the steps that it has
  return ask_all(servers, protocol::pack(loss), deadline(), replies).status();
}

// Keeps the servers from taking a trainer with a long step for lost. Errors are ignored: the next
// call reports them. A round that waits for a server which is down does not make the next one late.
void Client::send_heartbeats() {
  std::unique_lock lock(mutex_);
  auto next = std::chrono::steady_clock::now() + options_.heartbeat;
  while (!wake_.wait_until(lock, next, [this] { return stop_; })) {
    next = std::max(next, std::chrono::steady_clock::now() - options_.heartbeat);
    next += options_.heartbeat;
    lock.unlock();
    try {
      send_heartbeat();
    } catch (const std::exception&) {
      // no memory for this one; the next one follows in time
    }
    lock.lock();
  }
}

void Client::send_heartbeat() {
  const std::vector<Server*> servers = all_servers();
  std::mutex found;
  std::map<std::pair<int, uint64_t>, protocol::HelloAnswer::Suspect> suspects;
  size_t reached = 0;  // servers that can be asked about suspects
  const auto until = std::chrono::steady_clock::now() + options_.heartbeat;
  // in parallel, so that one server that is down does not delay the heartbeats to the others
  call_pool_.run(servers.size(), [&](size_t i) {
    Server& each = *servers[i];
    Request request;
    {
      // not during the call: to a server that is down, calls would never come to greet it again
      const std::unique_lock hello(each.hello, std::try_to_lock);
      if (!hello.owns_lock() || !each.greeted) return;
      request = hello_of(each, /*is_heartbeat=*/true);
      request.epoch = each.epoch;
    }
    Reply reply;
    Status status = ask(each, request, until, reply);
    // the connection has ended, perhaps before the server heard anything
    if (!status.ok() && reply.epoch == 0 && std::chrono::steady_clock::now() < until)
      status = ask(each, request, until, reply);
    const std::lock_guard own(found);
    if (reply.epoch != 0) ++reached;
    const StatusOr<protocol::HelloAnswer> answer = protocol::hello_answer(reply);
    if (!status.ok() || !answer.ok()) return;
    for (const auto& lost : answer->suspects) suspects[{lost.trainer, lost.incarnation}] = lost;
  });
  // to ask a server that does not respond would make the next heartbeats late
  if (reached < servers.size()) return;
  for (const auto& [key, lost] : suspects)
    if (is_training_ && lost.trainer != options_.trainer) (void)agree_on_loss(lost);
}

}  // namespace millrace::ps
