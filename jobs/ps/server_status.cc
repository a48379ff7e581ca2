#include "jobs/ps/server_status.h"

#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/exceptions.h"
#include "ps/protocol/answers.h"
#include "ps/protocol/pack.h"

namespace millrace::jobs {
namespace {

using ServerClock = std::chrono::steady_clock;

ServerAnswer ask(ps::Transport& transport, const std::string& endpoint,
                 std::chrono::milliseconds timeout) {
  ServerAnswer answer{endpoint, {}, {}, 0};
  const auto begin = ServerClock::now();
  const StatusOr<std::shared_ptr<ps::Channel>> channel = transport.connect(endpoint);
  answer.status = channel.status();
  if (!channel.ok()) return answer;
  ps::Reply reply;
  answer.status =
      (*channel)->call(ps::protocol::pack(ps::protocol::Watch{}), begin + timeout, reply);
  answer.text = ps::protocol::watch_answer(std::move(reply)).json;
  answer.millis = std::chrono::duration<double, std::milli>(ServerClock::now() - begin).count();
  return answer;
}

}  // namespace

StatusOr<std::vector<std::string>> registered_servers(const Discovery& discovery,
                                                      std::chrono::milliseconds timeout,
                                                      const LogSink& log) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<ps::Directory> directory,
                            open_directory(discovery, log));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::Directory::Entry> entries,
                            directory->list(ServerClock::now() + timeout));
  if (entries.empty()) return Status(StatusCode::kDistributed, "etcd has no server of the job");
  std::vector<std::string> servers;
  servers.reserve(entries.size());
  for (const ps::Directory::Entry& entry : entries) servers.push_back(entry.address);
  return servers;
}

std::vector<ServerAnswer> ask_servers(ps::Transport& transport,
                                      const std::vector<std::string>& endpoints,
                                      std::chrono::milliseconds timeout) {
  std::vector<ServerAnswer> answers(endpoints.size());
  std::vector<std::jthread> askers;  // also joined if a later one cannot be started
  for (size_t i = 0; i < endpoints.size(); ++i)
    askers.emplace_back([&, i] {
      answers[i].status = without_exceptions("while a server is asked", [&] {
        answers[i] = ask(transport, endpoints[i], timeout);
        return answers[i].status;
      });
    });
  for (std::jthread& asker : askers) asker.join();
  return answers;
}

Status all_answered(const std::vector<ServerAnswer>& answers) {
  std::vector<std::string> silent;
  for (const ServerAnswer& answer : answers)
    if (!answer.status.ok()) silent.push_back(answer.endpoint);
  if (silent.empty()) return Ok();
  Status status(StatusCode::kDistributed,
                fmt::format("{} of {} servers did not answer: {}", silent.size(), answers.size(),
                            fmt::join(silent, ", ")));
  for (const ServerAnswer& answer : answers) {
    if (answer.status.ok()) continue;
    std::string why = answer.endpoint + ": " + answer.status.message();
    if (!answer.status.notes().empty()) why += " (" + answer.status.notes().front() + ")";
    status = std::move(status).with_note(why);
  }
  return status;
}

}  // namespace millrace::jobs
