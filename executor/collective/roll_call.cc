#include "executor/collective/roll_call.h"

#include <chrono>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace millrace::executor {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

Status lost_store(const Status& why, const Status& store) {
  return Status(StatusCode::kDistributed,
                "lost rank 0: the store that it keeps does not answer any more")
      .with_note(why.message())
      .with_note(store.message());
}

Status name(const std::vector<int>& missing, const std::string& what, const Status& why) {
  return Status(StatusCode::kDistributed,
                fmt::format("lost {} {}: {}", missing.size() == 1 ? "rank" : "ranks",
                            fmt::join(missing, ", "), what))
      .with_note(why.message());
}

}  // namespace

Status call_roll(Store& store, const std::string& key, const std::vector<int>& ranks, int own,
                 int64_t wait_ms, const Status& why) {
  const auto key_of = [&](int rank) { return fmt::format("{}/roll/{}", key, rank); };
  const int own_rank = ranks[static_cast<size_t>(own)];
  if (Status status = store.set(key_of(own_rank), why.message()); !status.ok())
    return lost_store(why, status);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  std::vector<int> missing;
  do {
    missing.clear();
    std::vector<int> gone;
    for (const int rank : ranks) {
      if (rank == own_rank) continue;
      StatusOr<std::optional<std::string>> answer = store.find(key_of(rank));
      if (!answer.ok()) return lost_store(why, answer.status());
      if (answer->has_value()) continue;
      missing.push_back(rank);
      StatusOr<std::optional<std::string>> lost = store.find(Store::lost_key(rank));
      if (lost.ok() && lost->has_value()) gone.push_back(rank);
    }
    if (missing.empty()) return why;
    if (!gone.empty()) return name(gone, "it is not connected any more", why);
    std::this_thread::sleep_for(kBetweenLooks);
  } while (std::chrono::steady_clock::now() < deadline);
  return name(missing, fmt::format("no answer within {} ms after a failure", wait_ms), why);
}

}  // namespace millrace::executor
