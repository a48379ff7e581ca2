#include "kernels/gpu/host_collectives.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::gpu {
namespace {

// The input of a rank for one call.
struct Offer {
  CollectiveCall call;
  std::vector<std::byte> bytes;
};

// Synchronizes the ranks of a communicator in rounds. No rank is more than one round ahead of
// another, so the offer of one round stays readable until its rank enters the round after the next.
class Rendezvous {
 public:
  explicit Rendezvous(int size) : ranks_(static_cast<size_t>(size)) {}

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  Status enter(int rank) {
    const std::lock_guard lock(mutex_);
    if (at(rank).entered) return InvalidArgument("rank {} joins twice", rank);
    at(rank).entered = true;
    return Ok();
  }
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    at(rank).left = true;
    changed_.notify_all();
  }
  // Ends the waits of all ranks; the first reason is kept.
  void fail(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    changed_.notify_all();
  }

  Offer& offer(int rank, uint64_t round) { return at(rank).offers[round % 2]; }

  // Enters the next round and waits for the other ranks.
  Status meet(int rank, int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const uint64_t round = ++at(rank).round;
    changed_.notify_all();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (failure_.empty()) {
      const std::vector<int> awaited = missing(round, /*only_gone=*/false);
      if (awaited.empty()) return Ok();
      if (const std::vector<int> gone = missing(round, /*only_gone=*/true); !gone.empty())
        return {StatusCode::kDistributed,
                fmt::format("lost {}: it has left the communicator", name(gone))};
      if (std::chrono::steady_clock::now() >= deadline)
        return {StatusCode::kDistributed, fmt::format("waited {} ms for {}, which has not arrived",
                                                      timeout_ms, name(awaited))};
      changed_.wait_until(lock, deadline);
    }
    return {StatusCode::kDistributed, fmt::format("another rank has failed: {}", failure_)};
  }

 private:
  struct Rank {
    bool entered = false;
    bool left = false;
    uint64_t round = 0;
    Offer offers[2];
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  static std::string name(const std::vector<int>& ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
  }
  [[nodiscard]] std::vector<int> missing(uint64_t round, bool only_gone) const {
    std::vector<int> result;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].round < round && (!only_gone || ranks_[r].left))
        result.push_back(static_cast<int>(r));
    }
    return result;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::string failure_;
};

// All rendezvous objects of the process, by number.
class RendezvousTable {
 public:
  uint64_t number() {
    const std::lock_guard lock(mutex_);
    return next_++;
  }
  // The object that the first arriving rank created.
  StatusOr<std::shared_ptr<Rendezvous>> find(uint64_t number, int size) {
    const std::lock_guard lock(mutex_);
    std::erase_if(places_, [](const auto& entry) { return entry.second.expired(); });
    std::shared_ptr<Rendezvous> place = places_[number].lock();
    if (place == nullptr) {
      place = std::make_shared<Rendezvous>(size);
      places_[number] = place;
    }
    if (place->size() == size) return place;
    return InvalidArgument("this rank expects {} ranks, another rank expects {}", size,
                           place->size());
  }

 private:
  std::mutex mutex_;
  uint64_t next_ = 1;
  std::map<uint64_t, std::weak_ptr<Rendezvous>> places_;
};

RendezvousTable& rendezvous_table() {
  static RendezvousTable places;
  return places;
}

// The offers of all ranks, in rank order.
using Offers = std::vector<const std::byte*>;

// A rank; derived classes define how offers are exchanged.
class HostCommunicator : public Communicator {
 public:
  HostCommunicator(const CommunicatorPlace& place, Device& device)
      : Communicator(place), device_(device) {}

 private:
  /// Exchanges the offers.
  /// \param own  offer of this rank; must have the same size on all ranks
  virtual StatusOr<Offers> exchange(const CollectiveCall& call, std::vector<std::byte> own) = 0;

  Status queue(const CollectiveCall& call, const std::byte* from, std::byte* to) override {
    const int64_t piece = call.count * dtype_size(call.dtype);
    std::vector<std::byte> own(
        static_cast<size_t>(call.kind == CollectiveKind::kReduceScatter ? piece * size() : piece));
    const auto bytes = static_cast<int64_t>(own.size());
    MILLRACE_RETURN_IF_ERROR(device_.copy_out(from, own.data(), bytes));
    MILLRACE_ASSIGN_OR_RETURN(const Offers offers, exchange(call, std::move(own)));
    if (call.kind == CollectiveKind::kReduce && rank() != call.root) return Ok();
    std::vector<std::byte> result;
    MILLRACE_RETURN_IF_ERROR(combine(call, piece, offers, result));
    return device_.copy_in(result.data(), to, static_cast<int64_t>(result.size()));
  }

  // Computes the result of this rank.
  // \param piece  bytes of call.count elements
  Status combine(const CollectiveCall& call, int64_t piece, Offers offers,
                 std::vector<std::byte>& result) const {
    if (call.kind == CollectiveKind::kBroadcast) offers = {offers[static_cast<size_t>(call.root)]};
    if (call.kind == CollectiveKind::kBroadcast || call.kind == CollectiveKind::kAllGather) {
      for (const std::byte* const offer : offers) result.insert(result.end(), offer, offer + piece);
      return Ok();
    }
    if (call.kind == CollectiveKind::kReduceScatter) {
      for (const std::byte*& offer : offers) offer += rank() * piece;
    }
    result.resize(static_cast<size_t>(piece));
    std::byte* const results[1] = {result.data()};
    return kernels::reduce_parts(call.dtype, call.reduction, offers, results, call.count);
  }

  Status finish() override { return device_.wait(); }

  Device& device_;
};

// A rank that is a thread of this process.
class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(const CommunicatorPlace& place, Device& device,
                     std::shared_ptr<Rendezvous> rendezvous)
      : HostCommunicator(place, device), rendezvous_(std::move(rendezvous)) {}
  ~ThreadCommunicator() override { rendezvous_->leave(rank()); }

  // Joining is the first round.
  Status join() { return meet(place().join_timeout_ms); }

 private:
  Status meet(int64_t timeout_ms) {
    ++round_;
    return rendezvous_->meet(rank(), timeout_ms);
  }

  StatusOr<Offers> exchange(const CollectiveCall& call, std::vector<std::byte> own) override {
    rendezvous_->offer(rank(), round_ + 1) = {call, std::move(own)};
    MILLRACE_RETURN_IF_ERROR(meet(place().timeout_ms));
    Offers offers;
    for (int other = 0; other < size(); ++other) {
      const Offer& theirs = rendezvous_->offer(other, round_);
      if (theirs.call != call)
        return Status(StatusCode::kDistributed,
                      fmt::format("the ranks do not agree: rank {} calls {}, rank {} calls {}",
                                  rank(), describe(call), other, describe(theirs.call)));
      offers.push_back(theirs.bytes.data());
    }
    return offers;
  }

  void stop(const Status& reason) override { rendezvous_->fail(reason.message()); }

  std::shared_ptr<Rendezvous> rendezvous_;
  uint64_t round_ = 0;
};

// A rank that is a process. Its process group detects lost ranks and ranks that make other calls.
class ProcessCommunicator final : public HostCommunicator {
 public:
  using HostCommunicator::HostCommunicator;

 private:
  StatusOr<Offers> exchange(const CollectiveCall& /*call*/, std::vector<std::byte> own) override {
    all_.resize(own.size() * static_cast<size_t>(size()));
    MILLRACE_RETURN_IF_ERROR(
        place().gather(own.data(), static_cast<int64_t>(own.size()), all_.data()));
    Offers offers;
    for (size_t at = 0; at < all_.size(); at += own.size()) offers.push_back(all_.data() + at);
    return offers;
  }

  void stop(const Status& /*reason*/) override {}

  std::vector<std::byte> all_;
};

class HostCollectives final : public Collectives {
 public:
  explicit HostCollectives(Device& device) : device_(device) {}

  [[nodiscard]] std::string library() const override { return "emulated collectives"; }

  StatusOr<CommunicatorId> make_id() override {
    CommunicatorId id;
    fmt::format_to_n(id.bytes.data(), id.bytes.size() - 1, kIdFormat, ::getpid(),
                     rendezvous_table().number());
    return id;
  }

  StatusOr<std::unique_ptr<Communicator>> join(const CommunicatorId& id,
                                               const CommunicatorPlace& place) override {
    MILLRACE_RETURN_IF_ERROR(check_place(place));
    int process = 0;
    unsigned long long number = 0;
    if (std::sscanf(id.bytes.data(), "emulated %d %llu", &process, &number) != 2)
      return InvalidArgument("the id does not belong to an emulated communicator");
    if (place.gather != nullptr)
      return std::unique_ptr<Communicator>(std::make_unique<ProcessCommunicator>(place, device_));
    if (process != ::getpid())
      return Unimplemented("this emulated GPU cannot exchange values with that of process {}",
                           process);
    MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Rendezvous> rendezvous,
                              rendezvous_table().find(number, place.size));
    MILLRACE_RETURN_IF_ERROR(rendezvous->enter(place.rank));
    auto communicator = std::make_unique<ThreadCommunicator>(place, device_, std::move(rendezvous));
    if (Status status = communicator->join(); !status.ok())
      return std::move(status).with_note(
          fmt::format("rank {} of {} joins the others", place.rank, place.size));
    return std::unique_ptr<Communicator>(std::move(communicator));
  }

 private:
  static constexpr const char* kIdFormat = "emulated {} {}";
  Device& device_;
};

}  // namespace

std::unique_ptr<Collectives> make_host_collectives(Device& device) {
  return std::make_unique<HostCollectives>(device);
}

}  // namespace millrace::gpu
