#include "ps/protocol/pack.h"

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::ps::protocol {
namespace {

// Suffix of the names in a get that does not wait, as in programs of the original.
constexpr std::string_view kWithoutBarrier = "@WITHOUT_BARRIER@RECV";
constexpr std::string_view kSaveTable = "@SAVE_TABLE@";
constexpr std::string_view kLoadTable = "@LOAD_TABLE@";
constexpr std::string_view kCountLoaded = "@COUNT_LOADED@";
constexpr std::string_view kReplaces = "replace";
constexpr std::string_view kLeave = "leave";
constexpr std::string_view kUndecided = "?";
// Flags of Complete; its number is their sum.
constexpr int64_t kStays = 1;
constexpr int64_t kDoesNotWait = 2;
constexpr int64_t kSentEverywhere = 4;

// The text of a request that names a choice.
template <typename Kind>
struct KindWord {
  Kind kind;
  std::string_view word;
};
constexpr std::array kSendWords{KindWord<SendKind>{SendKind::kGradients, ""},
                                KindWord<SendKind>{SendKind::kValues, "set"}};
constexpr std::array kGetWords{KindWord<GetKind>{GetKind::kValues, ""},
                               KindWord<GetKind>{GetKind::kChangedRows, "changed"}};
constexpr std::array kPullWords{KindWord<PullKind>{PullKind::kPlain, ""},
                                KindWord<PullKind>{PullKind::kCounted, "count"},
                                KindWord<PullKind>{PullKind::kQuiet, "infer"},
                                KindWord<PullKind>{PullKind::kChangedRows, "geo"}};
constexpr std::array kPushWords{KindWord<PushKind>{PushKind::kUpdate, ""},
                                KindWord<PushKind>{PushKind::kValues, "set"},
                                KindWord<PushKind>{PushKind::kEndDay, "shrink"}};
constexpr std::array kBarrierWords{KindWord<CommBarrier>{CommBarrier::kSend, "send"},
                                   KindWord<CommBarrier>{CommBarrier::kReceive, "receive"},
                                   KindWord<CommBarrier>{CommBarrier::kInit, "init"},
                                   KindWord<CommBarrier>{CommBarrier::kLoad, "load"},
                                   KindWord<CommBarrier>{CommBarrier::kShrink, "shrink"},
                                   KindWord<CommBarrier>{CommBarrier::kWorker, "worker"}};

template <typename Kind, size_t Count>
std::string word_of(const std::array<KindWord<Kind>, Count>& words, Kind kind) {
  for (const KindWord<Kind>& row : words) {
    if (row.kind == kind) return std::string(row.word);
  }
  return {};
}

Status malformed(const Request& request, std::string_view field, std::string_view expected,
                 std::string_view found) {
  return InvalidArgument("the field '{}' of '{}': expected {}, found '{}'", field,
                         method_name(request.method), expected, printable(found));
}

template <typename Kind, size_t Count>
StatusOr<Kind> kind_of(const std::array<KindWord<Kind>, Count>& words, const Request& request) {
  std::string expected;
  for (const KindWord<Kind>& row : words) {
    if (row.word == request.text) return row.kind;
    expected += fmt::format("{}'{}'", expected.empty() ? "one of " : ", ", row.word);
  }
  return malformed(request, "kind", expected, request.text);
}

// A number of the envelope that must be from `least` to `most`.
Status check_range(const Request& request, std::string_view field, int64_t least, int64_t most) {
  if (request.number >= least && request.number <= most) return Ok();
  return malformed(request, field, fmt::format("{} to {}", least, most),
                   std::to_string(request.number));
}

StatusOr<std::string> name_at(const Request& request, size_t position, std::string_view field) {
  if (position < request.items.size()) return request.items[position].name;
  return malformed(request, field, "a name", "");
}

Request envelope(Method method, std::vector<RequestItem> items = {}) {
  Request request;
  request.method = method;
  request.items = std::move(items);
  return request;
}

Request named(Method method, std::vector<std::string> names) {
  Request request = envelope(method);
  request.items.reserve(names.size());
  for (std::string& name : names) request.items.push_back({std::move(name), nullptr, nullptr});
  return request;
}

std::vector<std::string> names_in(const Request& request) {
  std::vector<std::string> names;
  names.reserve(request.items.size());
  for (const RequestItem& item : request.items) names.push_back(item.name);
  return names;
}

StatusOr<int32_t> table_id(const Request& request) {
  MILLRACE_RETURN_IF_ERROR(check_range(request, "table", std::numeric_limits<int32_t>::min(),
                                       std::numeric_limits<int32_t>::max()));
  return static_cast<int32_t>(request.number);
}

void pack_into(Request& request, SaveVar what) {
  request.number = static_cast<int64_t>(what.rows);
  request.text = what.table.value_or("");
  request.items = {{std::move(what.folder), nullptr, nullptr}};
}

void pack_into(Request& request, SaveTable what) {
  request.number = what.table;
  request.text = kSaveTable;
  request.items = {{std::move(what.folder), nullptr, nullptr},
                   {std::to_string(what.mode), nullptr, nullptr}};
  if (what.replaces) request.items.push_back({std::string(kReplaces), nullptr, nullptr});
}

void pack_into(Request& request, LoadTable what) {
  request.number = what.table;
  request.text = kLoadTable;
  request.items = {{std::move(what.folder), nullptr, nullptr}};
}

void pack_into(Request& request, CountLoaded /*what*/) {
  request.text = kCountLoaded;
}

void pack_into(Request& request, const ServerBarrier& what) {
  request.text = word_of(kBarrierWords, what.kind);
}

void pack_into(Request& request, const TableBarrier& what) {
  request.text = word_of(kBarrierWords, what.kind);
  request.number = what.phase;
}

void pack_into(Request& request, const LeaveBarriers& /*what*/) {
  request.text = kLeave;
}

StatusOr<Checkpoint> unpack_save_table(const Request& request) {
  SaveTable what;
  MILLRACE_ASSIGN_OR_RETURN(what.table, table_id(request));
  MILLRACE_ASSIGN_OR_RETURN(what.folder, name_at(request, 0, "folder"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string mode, name_at(request, 1, "mode"));
  if (llvm::StringRef(mode).getAsInteger(10, what.mode))
    return malformed(request, "mode", "a number", mode);
  what.replaces = request.items.size() > 2;
  if (what.replaces && request.items[2].name != kReplaces)
    return malformed(request, "replaces", fmt::format("'{}'", kReplaces), request.items[2].name);
  if (request.items.size() > 3)
    return malformed(request, "replaces", "no name after it", request.items[3].name);
  return Checkpoint{std::move(what)};
}

}  // namespace

Request pack(const Hello& message) {
  Request request = envelope(Hello::kMethod);
  request.number = message.has_fetched ? 1 : 0;
  request.text = std::to_string(message.sent);
  for (const std::string& fact : message.plan) request.text += "\n" + fact;
  request.sequence = message.settled;
  return request;
}

Request pack(Send message) {
  Request request = envelope(Send::kMethod, std::move(message.vars));
  request.text = word_of(kSendWords, message.kind);
  return request;
}

Request pack(Get message) {
  Request request = named(Get::kMethod, std::move(message.names));
  request.text = word_of(kGetWords, message.kind);
  request.number = message.sent_everywhere ? 1 : 0;
  return request;
}

Request pack(GetNow message) {
  for (std::string& name : message.names) name += kWithoutBarrier;
  return named(GetNow::kMethod, std::move(message.names));
}

Request pack(Prefetch message) {
  Request request = envelope(Prefetch::kMethod, std::move(message.ids));
  request.text = message.table.value_or("");
  return request;
}

Request pack(SendBarrier message) {
  return envelope(SendBarrier::kMethod, std::move(message.vars));
}

Request pack(FetchBarrier message) {
  Request request = named(FetchBarrier::kMethod, std::move(message.names));
  request.number = message.sent_everywhere ? 1 : 0;
  return request;
}

Request pack(const Complete& message) {
  Request request = envelope(Complete::kMethod);
  request.number = (message.stays ? kStays : 0) + (message.waits ? 0 : kDoesNotWait) +
                   (message.sent_everywhere ? kSentEverywhere : 0);
  return request;
}

Request pack(Checkpoint message) {
  Request request = envelope(Checkpoint::kMethod);
  std::visit([&](auto& what) { pack_into(request, std::move(what)); }, message.what);
  return request;
}

Request pack(Count message) {
  Request request = envelope(Count::kMethod, {{std::move(message.counter), nullptr, nullptr}});
  request.number = message.steps;
  return request;
}

Request pack(Run message) {
  Request request = envelope(Run::kMethod, std::move(message.inputs));
  request.text = std::move(message.message);
  for (std::string& name : message.outputs)
    request.items.push_back({std::move(name), nullptr, nullptr});
  return request;
}

Request pack(Pull message) {
  Request request = envelope(Pull::kMethod, std::move(message.args));
  request.number = message.table;
  request.text = word_of(kPullWords, message.kind);
  return request;
}

Request pack(Push message) {
  Request request = envelope(Push::kMethod, std::move(message.args));
  request.number = message.table;
  request.text = word_of(kPushWords, message.kind);
  return request;
}

Request pack(const Barrier& message) {
  Request request = envelope(Barrier::kMethod);
  std::visit([&](const auto& what) { pack_into(request, what); }, message.what);
  return request;
}

Request pack(const Watch& /*message*/) {
  return envelope(Watch::kMethod);
}

Request pack(const Stop& /*message*/) {
  return envelope(Stop::kMethod);
}

Request pack(const GoTo& message) {
  Request request = envelope(GoTo::kMethod);
  request.number = message.step;
  request.text = std::to_string(message.settled);
  if (!message.oldest.empty())
    request.text += fmt::format(" {} {}", message.oldest_epoch, message.oldest);
  return request;
}

Request pack(const Loss& message) {
  Request request = envelope(Loss::kMethod);
  request.number = message.trainer;
  request.text = fmt::format("{} {}", message.incarnation,
                             message.steps ? std::to_string(*message.steps) : kUndecided);
  return request;
}

bool is_last_call(const Request& request) {
  return request.method == Method::kComplete && (request.number & kStays) == 0;
}

void set_sent_everywhere(Request& request, bool sent) {
  if (request.method == Method::kGet || request.method == Method::kFetchBarrier)
    request.number = sent ? 1 : 0;
  if (request.method == Method::kComplete)
    request.number = (request.number & (kStays + kDoesNotWait)) + (sent ? kSentEverywhere : 0);
}

template <>
StatusOr<Hello> unpack(const Request& request) {
  Hello message;
  MILLRACE_RETURN_IF_ERROR(check_range(request, "has_fetched", 0, 1));
  message.has_fetched = request.number == 1;
  const auto [sent, plan] = llvm::StringRef(request.text).split('\n');
  if (sent.getAsInteger(10, message.sent) || message.sent < 0)
    return malformed(request, "sent", "a number from 0", sent.str());
  llvm::SmallVector<llvm::StringRef, 0> facts;
  plan.split(facts, '\n', -1, false);
  for (const llvm::StringRef fact : facts) message.plan.push_back(fact.str());
  message.settled = request.sequence;
  return message;
}

template <>
StatusOr<Send> unpack(const Request& request) {
  MILLRACE_ASSIGN_OR_RETURN(const SendKind kind, kind_of(kSendWords, request));
  return Send{kind, request.items};
}

template <>
StatusOr<Get> unpack(const Request& request) {
  MILLRACE_ASSIGN_OR_RETURN(const GetKind kind, kind_of(kGetWords, request));
  MILLRACE_RETURN_IF_ERROR(check_range(request, "sent_everywhere", 0, 1));
  return Get{kind, names_in(request), request.number == 1};
}

template <>
StatusOr<GetNow> unpack(const Request& request) {
  GetNow message;
  message.names.reserve(request.items.size());
  for (const RequestItem& item : request.items) {
    llvm::StringRef name = item.name;
    if (!name.consume_back(llvm::StringRef(kWithoutBarrier)))
      return InvalidArgument("'{}' is fetched without a barrier, but its name does not end in '{}'",
                             item.name, kWithoutBarrier);
    message.names.push_back(name.str());
  }
  return message;
}

template <>
StatusOr<Prefetch> unpack(const Request& request) {
  Prefetch message;
  if (!request.text.empty()) message.table = request.text;
  message.ids = request.items;
  return message;
}

template <>
StatusOr<SendBarrier> unpack(const Request& request) {
  return SendBarrier{request.items};
}

template <>
StatusOr<FetchBarrier> unpack(const Request& request) {
  MILLRACE_RETURN_IF_ERROR(check_range(request, "sent_everywhere", 0, 1));
  return FetchBarrier{names_in(request), request.number == 1};
}

template <>
StatusOr<Complete> unpack(const Request& request) {
  MILLRACE_RETURN_IF_ERROR(
      check_range(request, "stays", 0, kStays + kDoesNotWait + kSentEverywhere));
  return Complete{.stays = (request.number & kStays) != 0,
                  .waits = (request.number & kDoesNotWait) == 0,
                  .sent_everywhere = (request.number & kSentEverywhere) != 0};
}

template <>
StatusOr<Checkpoint> unpack(const Request& request) {
  if (request.text == kCountLoaded) return Checkpoint{CountLoaded{}};
  if (request.text == kSaveTable) return unpack_save_table(request);
  if (request.text == kLoadTable) {
    LoadTable what;
    MILLRACE_ASSIGN_OR_RETURN(what.table, table_id(request));
    MILLRACE_ASSIGN_OR_RETURN(what.folder, name_at(request, 0, "folder"));
    return Checkpoint{std::move(what)};
  }
  SaveVar what;
  if (!request.text.empty()) what.table = request.text;
  MILLRACE_ASSIGN_OR_RETURN(what.folder, name_at(request, 0, "folder"));
  MILLRACE_ASSIGN_OR_RETURN(what.rows, rows_to_save(request.text, request.number));
  return Checkpoint{std::move(what)};
}

template <>
StatusOr<Count> unpack(const Request& request) {
  Count message;
  MILLRACE_ASSIGN_OR_RETURN(message.counter, name_at(request, 0, "counter"));
  message.steps = request.number;
  return message;
}

template <>
StatusOr<Run> unpack(const Request& request) {
  Run message;
  message.message = request.text;
  for (const RequestItem& item : request.items) {
    if (item.value != nullptr) {
      message.inputs.push_back(item);
    } else {
      message.outputs.push_back(item.name);
    }
  }
  return message;
}

template <>
StatusOr<Pull> unpack(const Request& request) {
  MILLRACE_ASSIGN_OR_RETURN(const PullKind kind, kind_of(kPullWords, request));
  return Pull{request.number, kind, request.items};
}

template <>
StatusOr<Push> unpack(const Request& request) {
  MILLRACE_ASSIGN_OR_RETURN(const PushKind kind, kind_of(kPushWords, request));
  return Push{request.number, kind, request.items};
}

template <>
StatusOr<Barrier> unpack(const Request& request) {
  if (request.text == kLeave) return Barrier{LeaveBarriers{}};
  MILLRACE_ASSIGN_OR_RETURN(const CommBarrier kind, kind_of(kBarrierWords, request));
  if (request.number == 0) return Barrier{ServerBarrier{kind}};
  MILLRACE_RETURN_IF_ERROR(check_range(request, "phase", 1, std::numeric_limits<int64_t>::max()));
  return Barrier{TableBarrier{kind, request.number}};
}

template <>
StatusOr<Watch> unpack(const Request& /*request*/) {
  return Watch{};
}

template <>
StatusOr<Stop> unpack(const Request& /*request*/) {
  return Stop{};
}

template <>
StatusOr<GoTo> unpack(const Request& request) {
  MILLRACE_RETURN_IF_ERROR(check_range(request, "step", 0, std::numeric_limits<int64_t>::max()));
  GoTo message{.step = request.number};
  const auto [settled, rest] = llvm::StringRef(request.text).split(' ');
  if (settled.getAsInteger(10, message.settled))
    return malformed(request, "settled", "a number from 0", settled.str());
  const auto [epoch, endpoint] = rest.split(' ');
  if (!rest.empty() && epoch.getAsInteger(10, message.oldest_epoch))
    return malformed(request, "oldest_epoch", "a number from 0", epoch.str());
  message.oldest = endpoint.str();
  return message;
}

template <>
StatusOr<Loss> unpack(const Request& request) {
  MILLRACE_RETURN_IF_ERROR(check_range(request, "trainer", 0, std::numeric_limits<int32_t>::max()));
  Loss message;
  message.trainer = static_cast<int32_t>(request.number);
  const auto [incarnation, steps] = llvm::StringRef(request.text).split(' ');
  if (incarnation.getAsInteger(10, message.incarnation))
    return malformed(request, "incarnation", "a number from 0", incarnation.str());
  if (steps == llvm::StringRef(kUndecided)) return message;
  int64_t number = 0;
  if (steps.getAsInteger(10, number) || number < -1)
    return malformed(request, "steps", "a number from -1", steps.str());
  message.steps = number;
  return message;
}

bool needs_sequence(const Request& request) {
  switch (request.method) {
    case Method::kSend:
    case Method::kSendBarrier:
    case Method::kFetchBarrier:
    case Method::kCount:
    case Method::kPush:
    case Method::kRun:
    case Method::kTableBarrier:
    case Method::kCheckpoint:
      return true;
    case Method::kGet:
      return request.text == word_of(kGetWords, GetKind::kChangedRows);
    case Method::kPull:
      return request.text == word_of(kPullWords, PullKind::kCounted) ||
             request.text == word_of(kPullWords, PullKind::kChangedRows);
    default:
      return false;
  }
}

}  // namespace millrace::ps::protocol
