#include "tools/ps/server_status.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "ps/protocol/answers.h"
#include "ps/protocol/pack.h"

namespace millrace::tools {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kDeepest = 16;

// Returns an empty value if the text is not an object, or is nested deeper than a server's status.
json parse_answer(const std::string& text) {
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= kDeepest; };
  json parsed = json::parse(text, shallow, false);
  return parsed.is_object() ? parsed : json();
}

// A member as text for the table.
std::string shown(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_structured() || at->is_null()) return "-";
  return printable(at->is_string() ? at->get<std::string>() : at->dump());
}

ServerAnswer ask(ps::Transport& transport, const std::string& endpoint,
                 std::chrono::milliseconds timeout) {
  ServerAnswer answer{endpoint, {}, {}, 0};
  const auto begin = Clock::now();
  const StatusOr<std::shared_ptr<ps::Channel>> channel = transport.connect(endpoint);
  answer.status = channel.status();
  if (!channel.ok()) return answer;
  ps::Reply reply;
  answer.status =
      (*channel)->call(ps::protocol::pack(ps::protocol::Watch{}), begin + timeout, reply);
  answer.text = ps::protocol::watch_answer(std::move(reply)).json;
  answer.millis = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return answer;
}

using ServerStatusRow = std::vector<std::string>;

std::string aligned(const std::vector<ServerStatusRow>& rows) {
  std::vector<size_t> widths;
  for (const ServerStatusRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const ServerStatusRow& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

void add_server(const ServerAnswer& answer, std::vector<ServerStatusRow>& servers,
                std::vector<ServerStatusRow>& trainers) {
  if (!answer.status.ok()) {
    servers.push_back({answer.endpoint, "no answer", "-", "-", "-", "-", "-"});
    return;
  }
  const json server = parse_answer(answer.text);
  servers.push_back({answer.endpoint, fmt::format("{:.1f} ms", answer.millis), shown(server, "job"),
                     shown(server, "mode"), shown(server, "epoch"), shown(server, "step"),
                     shown(server, "vars")});
  const auto list = server.find("trainers");
  if (list == server.end() || !list->is_array()) return;
  for (const json& trainer : *list) {
    if (!trainer.is_object()) continue;
    trainers.push_back({answer.endpoint, shown(trainer, "trainer"), shown(trainer, "state"),
                        shown(trainer, "step"), shown(trainer, "sent"), shown(trainer, "fetched"),
                        shown(trainer, "silent_s"), shown(trainer, "last")});
  }
}

}  // namespace

std::vector<ServerAnswer> ask_servers(ps::Transport& transport,
                                      const std::vector<std::string>& endpoints,
                                      std::chrono::milliseconds timeout) {
  std::vector<ServerAnswer> answers(endpoints.size());
  std::vector<std::jthread> askers;  // also joined if a later one cannot be started
  for (size_t i = 0; i < endpoints.size(); ++i)
    askers.emplace_back([&, i] { answers[i] = ask(transport, endpoints[i], timeout); });
  for (std::jthread& asker : askers) asker.join();
  return answers;
}

std::string status_table(const std::vector<ServerAnswer>& answers) {
  std::vector<ServerStatusRow> servers{
      {"SERVER", "ANSWER", "JOB", "MODE", "EPOCH", "STEP", "VARS"}};
  std::vector<ServerStatusRow> trainers{
      {"SERVER", "TRAINER", "STATE", "STEP", "SENT", "FETCHED", "SILENT S", "LAST CALL"}};
  for (const ServerAnswer& answer : answers) add_server(answer, servers, trainers);
  std::string out = aligned(servers);
  if (trainers.size() > 1) out += "\n" + aligned(trainers);
  return out;
}

std::string status_json(const std::vector<ServerAnswer>& answers) {
  json servers = json::array();
  for (const ServerAnswer& answer : answers) {
    json server{{"endpoint", answer.endpoint}, {"answered", answer.status.ok()}};
    server["ms"] = answer.millis;
    if (answer.status.ok()) {
      server["server"] = parse_answer(answer.text);
    } else {
      server["error"] = answer.status.message();
    }
    servers.push_back(std::move(server));
  }
  return json{{"servers", servers}}.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
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

}  // namespace millrace::tools
