#include "ps/transport/admission.h"

#include <fmt/format.h>

namespace millrace::ps {
namespace {

// More budgets of trainers than this are not kept while they are unused: a handler that knows no
// trainers accepts calls of any number.
constexpr size_t kKeptPeers = 1024;

}  // namespace

Admission::Admission(const GrpcOptions& options, const Handler& handler)
    : max_bytes_per_peer_(options.max_bytes_per_peer),
      handler_(handler),
      all_(options.max_bytes_in_flight, "the calls in progress"),
      unknown_(options.max_unknown_bytes, "callers that have not said hello") {}

StatusOr<MessageGrant> Admission::admit(const Request& envelope) {
  MILLRACE_ASSIGN_OR_RETURN(const bool is_known, handler_.knows(envelope));
  if (!is_known) return MessageGrant{&unknown_, nullptr, true};
  const int trainer = envelope.caller.trainer;
  const std::lock_guard lock(mutex_);
  if (peers_.size() > kKeptPeers)
    std::erase_if(peers_, [](const auto& peer) { return peer.second.use_count() == 1; });
  std::shared_ptr<MemoryBudget>& peer = peers_[trainer];
  if (peer == nullptr)
    peer = std::make_shared<MemoryBudget>(max_bytes_per_peer_,
                                          fmt::format("the calls of trainer {}", trainer));
  return MessageGrant{&all_, peer, false};
}

}  // namespace millrace::ps
