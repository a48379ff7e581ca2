#include "executor/collective/shared_board.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/base/polled_deadline.h"

namespace millrace::executor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLine = 128;  // processors fetch cache lines in pairs
constexpr size_t kReasonBytes = 768;
// A waiting rank first spins, for about as long as a rank on another processor takes; then it
// yields to threads that wait for this processor; then it sleeps.
constexpr int kSpins = 2000;
constexpr int kYields = 64;
constexpr int64_t kLookAroundMs = 50;  // a sleeping rank checks this often for ended ranks

// From linux/futex.h; without the private flag, because other processes wait at the same word.
constexpr int kFutexWait = 0;
constexpr int kFutexWake = 1;

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct alignas(kLine) SharedBoard::Header {
  std::atomic<uint32_t> bell;     ///< changes when sleepers should check again
  std::atomic<int32_t> sleepers;  ///< may be too high after a rank was killed, never too low
  alignas(kLine) std::atomic<uint32_t> failed;  ///< 0 no, 1 the reason is being written, 2 yes
  char reason[kReasonBytes];
};

struct alignas(kLine) SharedBoard::Line {
  std::atomic<uint64_t> arrived;
  std::atomic<uint32_t> joined;
  std::atomic<uint32_t> left;
  alignas(kLine) BoardCall calls[2];
};

struct alignas(kLine) SharedBoard::Mailbox {
  std::atomic<uint64_t> written;  ///< bytes written so far
  alignas(kLine) std::atomic<uint64_t> read;
};

size_t SharedBoard::bytes(const Shape& shape) {
  const auto ranks = static_cast<size_t>(shape.ranks);
  return round_up(sizeof(Header) + ranks * sizeof(Line), 4096) + ranks * 2 * shape.slot_bytes +
         ranks * ranks * (sizeof(Mailbox) + shape.mailbox_bytes);
}

SharedBoard::SharedBoard(std::byte* memory, const Shape& shape, std::function<bool(int)> is_lost)
    : memory_(memory), shape_(shape), is_lost_(std::move(is_lost)) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  // with fewer cores than ranks, spinning would only delay the others
  const bool crowded = shape.ranks > static_cast<int>(std::thread::hardware_concurrency());
  spins_ = crowded ? 0 : kSpins;
}

SharedBoard::Header& SharedBoard::header() const {
  return *reinterpret_cast<Header*>(memory_);
}

SharedBoard::Line& SharedBoard::line(int rank) const {
  return reinterpret_cast<Line*>(memory_ + sizeof(Header))[rank];
}

std::byte* SharedBoard::slot(int rank, uint64_t use) const {
  const auto ranks = static_cast<size_t>(shape_.ranks);
  const size_t start = round_up(sizeof(Header) + ranks * sizeof(Line), 4096);
  return memory_ + start + (static_cast<size_t>(rank) * 2 + (use & 1U)) * shape_.slot_bytes;
}

SharedBoard::Mailbox& SharedBoard::mailbox(int from, int to) const {
  const auto ranks = static_cast<size_t>(shape_.ranks);
  const size_t number = static_cast<size_t>(from) * ranks + static_cast<size_t>(to);
  std::byte* const start = slot(shape_.ranks, 0);
  return *reinterpret_cast<Mailbox*>(start + number * (sizeof(Mailbox) + shape_.mailbox_bytes));
}

BoardCall& SharedBoard::call(int rank, uint64_t round) {
  return line(rank).calls[round & 1U];
}

void SharedBoard::ring_bell() {
  Header& head = header();
  if (head.sleepers.load(std::memory_order_seq_cst) == 0) return;
  head.bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &head.bell, kFutexWake, INT_MAX, nullptr, nullptr, 0);
}

void SharedBoard::sleep(uint32_t bell, int64_t ms) {
  timespec limit{};
  limit.tv_sec = ms / 1000;
  limit.tv_nsec = ms % 1000 * 1'000'000;
  syscall(SYS_futex, &header().bell, kFutexWait, bell, &limit, nullptr, 0);
}

void SharedBoard::arrive(int rank, uint64_t round) {
  line(rank).arrived.store(round, std::memory_order_seq_cst);
  ring_bell();
}

void SharedBoard::leave(int rank) {
  line(rank).left.store(1, std::memory_order_seq_cst);
  ring_bell();
}

bool SharedBoard::failed() const {
  return header().failed.load(std::memory_order_acquire) == 2;
}

void SharedBoard::fail(const std::string& reason) {
  Header& head = header();
  uint32_t none = 0;
  if (!head.failed.compare_exchange_strong(none, 1)) return;
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(head.reason, reason.data(), length);
  head.reason[length] = '\0';
  head.failed.store(2, std::memory_order_seq_cst);
  ring_bell();
}

// Ok if there is no reason to stop waiting yet.
Status SharedBoard::absent(int partner, llvm::function_ref<bool(int)> has_arrived,
                           int64_t waited_ms, bool in_time) {
  if (failed()) return {StatusCode::kDistributed, std::string(header().reason)};
  std::vector<int> missing;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    if ((partner >= 0 && rank != partner) || has_arrived(rank)) continue;
    missing.push_back(rank);
    const bool left = line(rank).left.load(std::memory_order_seq_cst) != 0;
    if (!left && !is_lost_(rank)) continue;
    // it may have arrived just before it left
    if (has_arrived(rank)) return Ok();
    return {StatusCode::kDistributed,
            fmt::format("lost rank {}: {}", rank,
                        left ? "it has left the group" : "its process has ended")};
  }
  if (in_time || missing.empty()) return Ok();
  return {StatusCode::kDistributed,
          fmt::format("waited {} ms for {} {}, which {} not arrived", waited_ms,
                      missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
                      missing.size() == 1 ? "has" : "have")};
}

Status SharedBoard::wait(int64_t timeout_ms, int partner, llvm::function_ref<bool()> done,
                         llvm::function_ref<bool(int)> has_arrived) {
  for (int spin = 0; spin < spins_; ++spin) {
    if (done()) return Ok();
    pause();
  }
  for (int yield = 0; yield < kYields; ++yield) {
    if (done()) return Ok();
    std::this_thread::yield();
  }
  Header& head = header();
  const Clock::time_point start = Clock::now();
  PolledDeadline deadline(start + std::chrono::milliseconds(timeout_ms));
  while (!done()) {
    const Clock::duration left = deadline.left();
    const auto ms = [](Clock::duration time) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
    };
    MILLRACE_RETURN_IF_ERROR(
        absent(partner, has_arrived, ms(Clock::now() - start), left.count() > 0));
    const uint32_t bell = head.bell.load(std::memory_order_seq_cst);
    head.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (!done() && !failed()) sleep(bell, std::clamp<int64_t>(ms(left), 1, kLookAroundMs));
    head.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  return Ok();
}

Status SharedBoard::gather(int rank, int64_t timeout_ms) {
  line(rank).joined.store(1, std::memory_order_seq_cst);
  ring_bell();
  const auto has_arrived = [&](int other) {
    return line(other).joined.load(std::memory_order_seq_cst) != 0;
  };
  const auto done = [&] {
    for (int other = 0; other < shape_.ranks; ++other) {
      if (!has_arrived(other)) return false;
    }
    return true;
  };
  return wait(timeout_ms, -1, done, has_arrived);
}

Status SharedBoard::wait_for_all(int rank, uint64_t round, int64_t timeout_ms) {
  const auto has_arrived = [&](int other) {
    return other == rank || line(other).arrived.load(std::memory_order_seq_cst) >= round;
  };
  int next = 0;  // all lower ranks have arrived
  const auto done = [&] {
    while (next < shape_.ranks && has_arrived(next)) ++next;
    return next == shape_.ranks;
  };
  return wait(timeout_ms, -1, done, has_arrived);
}

Status SharedBoard::send(int from, int to, const std::byte* data, int64_t bytes,
                         int64_t timeout_ms) {
  Mailbox& box = mailbox(from, to);
  auto* const room = reinterpret_cast<std::byte*>(&box + 1);
  uint64_t written = box.written.load(std::memory_order_relaxed);
  while (bytes > 0) {
    const auto free_bytes = [&] {
      return shape_.mailbox_bytes - (written - box.read.load(std::memory_order_seq_cst));
    };
    const auto done = [&] { return free_bytes() > 0; };
    MILLRACE_RETURN_IF_ERROR(wait(timeout_ms, to, done, [&](int) { return done(); }));
    const size_t at = written % shape_.mailbox_bytes;
    const size_t now =
        std::min({free_bytes(), shape_.mailbox_bytes - at, static_cast<size_t>(bytes)});
    std::memcpy(room + at, data, now);
    written += now;
    box.written.store(written, std::memory_order_seq_cst);
    ring_bell();
    data += now;
    bytes -= static_cast<int64_t>(now);
  }
  return Ok();
}

Status SharedBoard::receive(int from, int to, std::byte* data, int64_t bytes, int64_t timeout_ms) {
  Mailbox& box = mailbox(from, to);
  const auto* const room = reinterpret_cast<std::byte*>(&box + 1);
  uint64_t read = box.read.load(std::memory_order_relaxed);
  while (bytes > 0) {
    const auto there = [&] { return box.written.load(std::memory_order_seq_cst) - read; };
    const auto done = [&] { return there() > 0; };
    MILLRACE_RETURN_IF_ERROR(wait(timeout_ms, from, done, [&](int) { return done(); }));
    const size_t at = read % shape_.mailbox_bytes;
    const size_t now = std::min(
        {static_cast<size_t>(there()), shape_.mailbox_bytes - at, static_cast<size_t>(bytes)});
    std::memcpy(data, room + at, now);
    read += now;
    box.read.store(read, std::memory_order_seq_cst);
    ring_bell();
    data += now;
    bytes -= static_cast<int64_t>(now);
  }
  return Ok();
}

}  // namespace millrace::executor
