#include <cstdlib>
#include <new>

#include "executor/collective/shared_group.h"
#include "framework/base/errors.h"

// Shared memory of the threads of one process.
namespace millrace::executor {
namespace {

constexpr size_t kThreadSlotBytes = size_t{64} << 10U;
constexpr size_t kThreadMailboxBytes = size_t{16} << 10U;
constexpr std::align_val_t kPage{4096};

struct Release {
  void operator()(std::byte* memory) const { ::operator delete(memory, kPage); }
};

class ThreadSegment final : public SharedSegment {
 public:
  explicit ThreadSegment(int ranks)
      : shape_{ranks, kThreadSlotBytes, kThreadMailboxBytes},
        memory_(static_cast<std::byte*>(::operator new(SharedBoard::bytes(shape_), kPage))),
        board_(clear(memory_.get()), shape_, [](int) { return false; }) {}

  SharedBoard& board() override { return board_; }
  [[nodiscard]] bool same_process() const override { return true; }

  StatusOr<std::shared_ptr<SharedSegment>> create(int ranks, std::string& key) override {
    auto segment = std::make_shared<ThreadSegment>(ranks);
    const std::lock_guard lock(mutex_);
    key = std::to_string(children_.size());
    children_.push_back(segment);
    return std::shared_ptr<SharedSegment>(segment);
  }

  StatusOr<std::shared_ptr<SharedSegment>> attach(int /*ranks*/, int /*rank*/,
                                                  const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const size_t number = std::strtoull(key.c_str(), nullptr, 10);
    if (number >= children_.size()) return Internal("there is no shared memory '{}'", key);
    return std::shared_ptr<SharedSegment>(children_[number]);
  }

  void complete() override {}

 private:
  std::byte* clear(std::byte* memory) const {
    std::fill_n(memory, SharedBoard::bytes(shape_), std::byte{0});
    return memory;
  }

  SharedBoard::Shape shape_;
  std::unique_ptr<std::byte, Release> memory_;
  SharedBoard board_;
  std::mutex mutex_;
  /// Memory of subgroups; kept until the group ends, because ranks attach at different times.
  std::vector<std::shared_ptr<SharedSegment>> children_;
};

}  // namespace

StatusOr<std::vector<std::unique_ptr<CollectiveGroup>>> make_thread_groups(int size,
                                                                           int64_t timeout_ms) {
  if (size < 1 || size > SharedBoard::kMostRanks)
    return InvalidArgument("expected a group of 1 to {} ranks, found {}", SharedBoard::kMostRanks,
                           size);
  auto segment = std::make_shared<ThreadSegment>(size);
  std::vector<std::unique_ptr<CollectiveGroup>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(std::make_unique<SharedGroup>(
        GroupSettings{.rank = rank, .size = size, .timeout_ms = timeout_ms}, segment));
  }
  return groups;
}

}  // namespace millrace::executor
