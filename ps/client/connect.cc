#include "ps/client/connect.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/ScopeExit.h>

#include "framework/op_attrs.h"
#include "ps/client/call_pool.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

// The responses so far, by server. Thread-safe.
class Answers {
 public:
  explicit Answers(const std::vector<std::string>& endpoints)
      : endpoints_(endpoints), results_(endpoints.size()), answered_(endpoints.size(), 0) {}

  void note(size_t index, Status status) {
    const std::lock_guard lock(mutex_);
    results_[index] = std::move(status);
    answered_[index] = 1;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  // Logs the missing servers at intervals, until end() is called.
  void report(int trainer, std::chrono::milliseconds every,
              const std::function<void(const std::string&)>& tell) {
    const auto begin = Clock::now();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, every, [this] { return ended_; })) {
      std::vector<std::string> missing;
      std::string failures;
      for (size_t i = 0; i < endpoints_.size(); ++i) {
        if (answered_[i] == 0) missing.push_back(endpoints_[i]);
        if (!results_[i].ok())
          failures += fmt::format("; {}: {}", endpoints_[i], results_[i].message());
      }
      const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      tell(fmt::format("trainer {} has waited {:.0f} s for {} of {} servers: {}{}", trainer,
                       seconds, missing.size(), endpoints_.size(), fmt::join(missing, ", "),
                       failures));
    }
  }
  // Errors: the first one, with a note that names all servers that failed.
  Status outcome(int trainer) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> failed;
    Status first;
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      if (results_[i].ok()) continue;
      failed.push_back(endpoints_[i]);
      if (first.ok()) first = std::move(results_[i]);
    }
    if (first.ok()) return first;
    return std::move(first).with_note(
        fmt::format("trainer {} could not connect to {} of {} servers: {}", trainer, failed.size(),
                    endpoints_.size(), fmt::join(failed, ", ")));
  }

 private:
  const std::vector<std::string>& endpoints_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Status> results_;
  std::vector<char> answered_;
  bool ended_ = false;
};

}  // namespace

std::vector<std::string> servers_named_in(const Program& program) {
  using Strings = std::vector<std::string>;
  std::set<std::string> servers;
  for (const Op& op : program.root().ops()) {
    const bool barrier = op.type() == "send_barrier" || op.type() == "fetch_barrier";
    if (!barrier && op.type() != "send" && op.type() != "recv") continue;
    for (const std::string& each : get_attr_or(op, barrier ? "endpoints" : "epmap", Strings{})) {
      if (!each.empty()) servers.insert(each);
    }
  }
  return {servers.begin(), servers.end()};
}

std::set<std::string> heter_workers_named_in(const Program& program) {
  std::set<std::string> workers;
  for (const Op& op : program.root().ops()) {
    if (op.type() != "send_and_recv") continue;
    for (const char* const attr : {"next_endpoints", "previous_endpoints", "endpoints"}) {
      const auto named = get_attr_or(op, attr, std::vector<std::string>{});
      workers.insert(named.begin(), named.end());
    }
    workers.insert(get_attr_or<std::string>(op, "endpoint", ""));
  }
  workers.erase("");
  return workers;
}

// Where recv_varnames splits a var, its own dims say nothing about the slices.
std::map<std::string, PlanFacts> facts_of_program(const Program& program) {
  using Names = std::vector<std::string>;
  std::map<std::string, PlanFacts> facts;
  for (const Op& op : program.root().ops()) {
    if (op.type() != "recv") continue;
    const Names servers = get_attr_or(op, "epmap", Names{});
    const Names named = get_attr_or(op, "recv_varnames", Names{});
    const auto outputs = op.output("Out");
    if (servers.size() != outputs.size() || (!named.empty() && named.size() != outputs.size()))
      continue;
    for (size_t i = 0; i < servers.size(); ++i) {
      const Var* const var = program.root().find_var(outputs[i]);
      if (var == nullptr || !var->spec().has_tensor() || var->dims().empty()) continue;
      const std::string type = type_fact(var->dtype(), var->dims());
      if (type.empty()) continue;
      facts[servers[i]].push_back(
          received_fact(named.empty() ? outputs[i] : llvm::StringRef(named[i]), type));
    }
  }
  return facts;
}

Status connect_to_servers(Client& client, const std::vector<std::string>& endpoints,
                          std::chrono::milliseconds every,
                          const std::function<void(const std::string&)>& tell) {
  Answers answers(endpoints);
  std::thread reporter;
  const auto end_report = llvm::make_scope_exit([&] {
    answers.end();
    if (reporter.joinable()) reporter.join();
  });
  if (tell) {
    reporter = std::thread([&] {
      try {
        answers.report(client.options().trainer, every, tell);
      } catch (const std::exception&) {
        // no memory for a line of the log; the outcome is reported all the same
      }
    });
  }
  {
    CallPool call_pool;
    call_pool.run(endpoints.size(),
                  [&](size_t i) { answers.note(i, client.mode_of(endpoints[i]).status()); });
  }
  return answers.outcome(client.options().trainer);
}

}  // namespace millrace::ps
