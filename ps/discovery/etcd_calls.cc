#include "ps/discovery/etcd_calls.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/message_lite.h>

namespace millrace::ps {
namespace {

using EtcdClock = std::chrono::steady_clock;
using google::protobuf::MessageLite;

// A member that has not responded after this time is skipped, if there are others.
constexpr std::chrono::milliseconds kEtcdCallsPatience{1500};
constexpr std::chrono::milliseconds kEtcdCallsPause{100};

Status call_member(EtcdMember& member, const EtcdRequest& request, MessageLite& answer,
                   Deadline deadline) {
  std::string response;
  MILLRACE_RETURN_IF_ERROR(member.call(request, deadline, response));
  if (answer.ParseFromString(response)) return Ok();
  return {StatusCode::kInvalidData, "the response cannot be parsed"};
}

}  // namespace

// Tries the members in turn, repeatedly, until one responds.
Status EtcdCalls::ask_members(const EtcdRequest& request, MessageLite& answer, Deadline deadline) {
  const size_t first = last_good_;
  std::vector<std::string> words(members_.size());
  for (size_t i = 0;; ++i) {
    const size_t at = (first + i) % members_.size();
    EtcdMember& member = *members_[at];
    const Status status = call_member(member, request, answer,
                                      std::min(deadline, EtcdClock::now() + kEtcdCallsPatience));
    if (status.ok()) {
      last_good_ = at;
      return Ok();
    }
    words[at] = fmt::format("{}: {}", member.endpoint(), status.message());
    const bool is_absent = status.code() == StatusCode::kDistributed;
    if (is_absent && EtcdClock::now() + kEtcdCallsPause < deadline) {
      std::this_thread::sleep_for(kEtcdCallsPause);
      continue;
    }
    Status failed(StatusCode::kDistributed,
                  fmt::format("no etcd member answered '{}'", request.method));
    for (const std::string& word : words)
      if (!word.empty()) failed = std::move(failed).with_note(word);
    return failed;
  }
}

Status EtcdCalls::ask(const std::string& method, const MessageLite& request, MessageLite& answer,
                      Deadline deadline) {
  return ask_members({method, false, request.SerializeAsString()}, answer, deadline);
}

Status EtcdCalls::ask_stream(const std::string& method, const MessageLite& request,
                             MessageLite& answer, Deadline deadline) {
  return ask_members({method, true, request.SerializeAsString()}, answer, deadline);
}

}  // namespace millrace::ps
