#include "ps/protocol/answers.h"

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::ps::protocol {
namespace {

using Standing = HelloAnswer::Standing;

// The numbers are those of CommMode; a server knows no half-async mode.
struct ModeNumber {
  ServerMode mode;
  int64_t number;
};
constexpr std::array<ModeNumber, 3> kModeNumbers{
    {{ServerMode::kSync, 0}, {ServerMode::kAsync, 1}, {ServerMode::kGeo, 3}}};
// A standing is sent as its position.
constexpr std::array kStandings{Standing::kContinues, Standing::kJoins, Standing::kMustGoBack};
// Of LoadedTables: a number follows.
constexpr const char* kEvery = "every:";

}  // namespace

void put_answer(const HelloAnswer& answer, ReplySink& reply) {
  for (const ModeNumber& row : kModeNumbers) {
    if (row.mode == answer.mode) reply.set_number(row.number);
  }
  size_t standing = 0;
  while (kStandings[standing] != answer.standing) ++standing;
  std::string text = fmt::format("{} {} {}", answer.sent, answer.applied, standing);
  for (const HelloAnswer::Suspect& suspect : answer.suspects)
    text += fmt::format("\n{} {}", suspect.trainer, suspect.incarnation);
  reply.set_text(std::move(text));
}

StatusOr<HelloAnswer> hello_answer(const Reply& reply) {
  const auto malformed = [&] {
    return InvalidData("a server responded to a hello with {} and '{}'", reply.number,
                       printable(reply.text));
  };
  HelloAnswer answer;
  bool known = false;
  for (const ModeNumber& row : kModeNumbers) {
    if (row.number != reply.number) continue;
    answer.mode = row.mode;
    known = true;
  }
  auto [line, more] = llvm::StringRef(reply.text).split('\n');
  const auto [sent, rest] = line.split(' ');
  const auto [applied, standing] = rest.split(' ');
  size_t position = 0;
  if (!known || sent.getAsInteger(10, answer.sent) || applied.getAsInteger(10, answer.applied) ||
      standing.getAsInteger(10, position) || answer.sent < 0 || answer.applied < 0 ||
      position >= kStandings.size())
    return malformed();
  answer.standing = kStandings[position];
  while (!more.empty()) {
    std::tie(line, more) = more.split('\n');
    const auto [trainer, incarnation] = line.split(' ');
    HelloAnswer::Suspect& suspect = answer.suspects.emplace_back();
    if (trainer.getAsInteger(10, suspect.trainer) ||
        incarnation.getAsInteger(10, suspect.incarnation) || suspect.trainer < 0)
      return malformed();
  }
  return answer;
}

void put_answer(const SavedFile& answer, ReplySink& reply) {
  reply.set_text(fmt::format("{} {} {}", answer.size, answer.checksum.text(), answer.name));
}

StatusOr<SavedFile> saved_file(const Reply& reply, std::string_view server) {
  const auto [size, rest] = llvm::StringRef(reply.text).split(' ');
  const auto [digits, name] = rest.split(' ');
  SavedFile file;
  const auto checksum = io::Checksum::parse(digits);
  if (size.getAsInteger(10, file.size) || !checksum || name.empty())
    return Status(StatusCode::kDistributed,
                  fmt::format("the server at {} did not report which file it wrote", server));
  file.name = name.str();
  file.checksum = *checksum;
  return file;
}

void put_answer(const LoadedTables& answer, ReplySink& reply) {
  reply.set_number(answer.count);
  std::vector<std::string> words;
  if (answer.ready) words.emplace_back("ready");
  if (answer.restored) words.emplace_back("restored");
  if (answer.snapshot_every > 0) words.push_back(kEvery + std::to_string(answer.snapshot_every));
  reply.set_text(fmt::to_string(fmt::join(words, " ")));
}

StatusOr<LoadedTables> loaded_tables(const Reply& reply) {
  if (reply.number < 0)
    return InvalidData("a server has loaded {} tables, expected at least 0", reply.number);
  LoadedTables answer{.count = reply.number};
  llvm::SmallVector<llvm::StringRef, 3> words;
  llvm::StringRef(reply.text).split(words, ' ', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef word : words) {
    if (word == "ready") {
      answer.ready = true;
    } else if (word == "restored") {
      answer.restored = true;
    } else if (!word.consume_front(kEvery) || word.getAsInteger(10, answer.snapshot_every) ||
               answer.snapshot_every < 1) {
      return InvalidData(
          "a server says about its tables '{}', expected 'ready', 'restored' or "
          "'every:N'",
          printable(word.str()));
    }
  }
  return answer;
}

void put_answer(const LossAnswer& answer, ReplySink& reply) {
  reply.set_number(answer.steps);
  reply.set_text(answer.decided ? "decided" : "");
}

StatusOr<LossAnswer> loss_answer(const Reply& reply) {
  if (reply.number < -1 || (!reply.text.empty() && reply.text != "decided"))
    return InvalidData("a server responded to the loss of a trainer with {} and '{}'", reply.number,
                       printable(reply.text));
  return LossAnswer{.steps = reply.number, .decided = !reply.text.empty()};
}

void put_answer(WatchAnswer answer, ReplySink& reply) {
  reply.set_text(std::move(answer.json));
}

WatchAnswer watch_answer(Reply reply) {
  return {std::move(reply.text)};
}

}  // namespace millrace::ps::protocol
