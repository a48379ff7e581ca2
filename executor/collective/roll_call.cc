#include "executor/collective/roll_call.h"

#include <chrono>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/polled_deadline.h"

namespace millrace::executor {
namespace {

constexpr auto kRollCallBetweenLooks = std::chrono::milliseconds(20);

Status lost_store(const Status& why, const Status& store) {
  return Status(StatusCode::kDistributed,
                "lost rank 0: the store that it serves does not respond any more")
      .with_note(why.message())
      .with_note(store.message());
}

Status name(const std::vector<int>& missing, const std::string& what, const Status& why) {
  return Status(StatusCode::kDistributed,
                fmt::format("lost {} {}: {}", missing.size() == 1 ? "rank" : "ranks",
                            fmt::join(missing, ", "), what))
      .with_note(why.message());
}

// One roll call, from the point of view of one rank.
class Roll {
 public:
  Roll(Store& store, const std::string& key, const std::vector<int>& ranks, int own_rank,
       int64_t wait_ms)
      : store_(store),
        key_(key),
        ranks_(ranks),
        own_rank_(own_rank),
        wait_ms_(wait_ms),
        deadline_(std::chrono::milliseconds(wait_ms)) {}

  Status call(const Status& why) {
    if (Status status = store_.set(key_of("roll", own_rank_), why.message()); !status.ok())
      return lost_store(why, status);
    std::vector<int> missing;
    do {
      missing.clear();
      std::vector<int> gone;
      for (const int rank : ranks_) {
        if (rank == own_rank_) continue;
        StatusOr<std::optional<std::string>> answer = store_.find(key_of("roll", rank));
        if (!answer.ok()) return lost_store(why, answer.status());
        if (answer->has_value()) continue;
        missing.push_back(rank);
        if (is_gone(rank)) gone.push_back(rank);
      }
      if (missing.empty()) return why;
      if (!gone.empty()) return name(gone, "it is not connected any more", why);
      std::this_thread::sleep_for(kRollCallBetweenLooks);
    } while (!deadline_.has_passed());
    return name(missing, fmt::format("no answer within {} ms after a failure", wait_ms_), why);
  }

  // The store ends with the rank that serves it. To ranks that have not read it yet, that would
  // look like the loss of that rank. So it is kept until all remaining ranks have read it, or until
  // the deadline.
  void leave() {
    if (!store_.is_served_here()) {
      // if the store is gone, no rank waits for this
      (void)store_.set(key_of("heard", own_rank_), "");
      return;
    }
    for (const int rank : ranks_) {
      while (rank != own_rank_ && !has_heard(rank) && !is_gone(rank) && !deadline_.has_passed())
        std::this_thread::sleep_for(kRollCallBetweenLooks);
    }
  }

 private:
  [[nodiscard]] std::string key_of(const char* what, int rank) const {
    return fmt::format("{}/{}/{}", key_, what, rank);
  }
  bool is_set(const std::string& key) {
    const StatusOr<std::optional<std::string>> value = store_.find(key);
    return value.ok() && value->has_value();
  }
  bool is_gone(int rank) { return is_set(Store::lost_key(rank)); }
  bool has_heard(int rank) { return is_set(key_of("heard", rank)); }

  Store& store_;
  const std::string& key_;
  const std::vector<int>& ranks_;
  int own_rank_;
  int64_t wait_ms_;
  PolledDeadline deadline_;
};

}  // namespace

Status call_roll(Store& store, const std::string& key, const std::vector<int>& ranks, int own,
                 int64_t wait_ms, const Status& why) {
  Roll roll(store, key, ranks, ranks[static_cast<size_t>(own)], wait_ms);
  Status status = roll.call(why);
  roll.leave();
  return status;
}

}  // namespace millrace::executor
