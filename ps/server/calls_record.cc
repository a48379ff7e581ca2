#include "ps/server/calls_record.h"

#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

constexpr const char* kForm = "millrace.ps.calls";
constexpr int kVersion = 1;

// Splits text into numbers separated by blanks and line ends.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  llvm::StringRef word() {
    rest_ = rest_.ltrim(" \n");
    const llvm::StringRef found = rest_.take_until([](char c) { return c == ' ' || c == '\n'; });
    rest_ = rest_.drop_front(found.size());
    return found;
  }
  // False if the next word is not a number of that type.
  template <typename T>
  bool number(T& to) {
    return !word().getAsInteger(10, to);
  }
  [[nodiscard]] bool at_end() const { return rest_.trim(" \n").empty(); }

 private:
  llvm::StringRef rest_;
};

bool read_trainer(Words& words, CallsRecord::Trainer& trainer) {
  uint64_t more = 0;
  const bool head = words.number(trainer.incarnation) && words.number(trainer.sent) &&
                    words.number(trainer.fetched) && words.number(trainer.low) &&
                    words.number(more);
  if (!head || trainer.sent < 0 || trainer.fetched < 0) return false;
  for (uint64_t i = 0; i < more; ++i) {
    uint64_t sequence = 0;
    if (!words.number(sequence) || !trainer.done.insert(sequence).second) return false;
  }
  return true;
}

}  // namespace

std::string calls_text(const CallsRecord& record) {
  std::string text =
      fmt::format("{} {} {} {}\n", kForm, kVersion, record.applied, record.trainers.size());
  for (const CallsRecord::Trainer& trainer : record.trainers) {
    text += fmt::format("{} {} {} {} {}", trainer.incarnation, trainer.sent, trainer.fetched,
                        trainer.low, trainer.done.size());
    for (const uint64_t sequence : trainer.done) text += fmt::format(" {}", sequence);
    text += '\n';
  }
  return text;
}

StatusOr<CallsRecord> parse_calls(std::string_view text) {
  Words words(text);
  CallsRecord record;
  int version = 0;
  uint64_t trainers = 0;
  const bool form = words.word() == kForm && words.number(version);
  if (form && version != kVersion) {
    return Unimplemented("the record '{}' is of version {}: this build reads {}", kCallsRecord,
                         version, kVersion);
  }
  bool good = form && words.number(record.applied) && record.applied >= 0 && words.number(trainers);
  for (uint64_t i = 0; good && i < trainers; ++i)
    good = read_trainer(words, record.trainers.emplace_back());
  if (good && words.at_end()) return record;
  return InvalidData("not a snapshot of a server: its record '{}' is malformed", kCallsRecord);
}

}  // namespace millrace::ps
