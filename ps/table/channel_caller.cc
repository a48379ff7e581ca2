#include "ps/table/channel_caller.h"

#include <thread>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "ps/protocol/pack.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<ChannelCaller>> ChannelCaller::create(
    std::shared_ptr<Transport> transport, const std::vector<std::string>& endpoints,
    Options options) {
  if (endpoints.empty())
    return InvalidArgument("table servers: expected at least one endpoint, found none");
  auto caller =
      std::unique_ptr<ChannelCaller>(new ChannelCaller(std::move(transport), std::move(options)));
  for (const std::string& endpoint : endpoints) {
    MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Channel> channel,
                              caller->transport_->connect(endpoint));
    caller->channels_.push_back(std::move(channel));
    caller->sequences_.push_back(std::make_unique<std::atomic<uint64_t>>(0));
  }
  return caller;
}

Status ChannelCaller::call_all(std::span<TableRequest> requests) {
  if (requests.empty()) return Ok();
  std::vector<Status> statuses(requests.size());
  std::vector<std::jthread> others;  // also joined if a later one cannot be started
  for (size_t i = 1; i < requests.size(); ++i)
    others.emplace_back([&, i] {
      statuses[i] =
          without_exceptions("in a call of a table server", [&] { return call(requests[i]); });
    });
  statuses[0] = call(requests[0]);
  for (std::jthread& other : others) other.join();
  for (Status& status : statuses) MILLRACE_RETURN_IF_ERROR(std::move(status));
  return Ok();
}

Status ChannelCaller::call(TableRequest& request) {
  Request& sent = request.request;
  sent.caller = options_.caller;
  sent.sequence = protocol::needs_sequence(sent) ? ++*sequences_[request.server] : 0;
  const auto deadline = std::chrono::steady_clock::now() + options_.deadline;
  auto pause = options_.retry_pause;
  for (int attempt = 0;; ++attempt) {
    // A moved value could not be sent again by a repeat.
    if (attempt < options_.retries) {
      for (RequestItem& item : sent.items) item.movable = nullptr;
    }
    Status status = channels_[request.server]->call(sent, deadline, request.reply);
    if (status.code() != StatusCode::kDistributed || attempt >= options_.retries ||
        channels_[request.server]->closed() || std::chrono::steady_clock::now() + pause >= deadline)
      return status;
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

}  // namespace millrace::ps
