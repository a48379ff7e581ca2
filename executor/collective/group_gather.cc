#include "executor/collective/group_gather.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"

namespace millrace::executor {
namespace group_gather {
namespace {

const std::byte* bytes_of(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

std::byte* bytes_of(std::string& text) {
  return reinterpret_cast<std::byte*>(text.data());
}

class GroupGather final : public io::Gather {
 public:
  explicit GroupGather(CollectiveGroup& group) : group_(group) {}

  [[nodiscard]] int32_t rank() const override { return group_.rank(); }
  [[nodiscard]] int32_t world_size() const override { return group_.size(); }

  // Texts of unequal length are padded to the longest.
  StatusOr<std::vector<std::string>> all_gather(std::string mine) override {
    const auto own = static_cast<int64_t>(mine.size());
    std::vector<int64_t> sizes(ranks());
    MILLRACE_RETURN_IF_ERROR(group_.all_gather(reinterpret_cast<const std::byte*>(&own), sizeof own,
                                               reinterpret_cast<std::byte*>(sizes.data())));
    const int64_t longest = std::ranges::max(sizes);
    mine.resize(static_cast<size_t>(longest));
    std::string all(mine.size() * ranks(), '\0');
    if (longest > 0)
      MILLRACE_RETURN_IF_ERROR(group_.all_gather(bytes_of(mine), longest, bytes_of(all)));
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < ranks(); ++rank)
      texts.push_back(all.substr(rank * mine.size(), static_cast<size_t>(sizes[rank])));
    return texts;
  }

  StatusOr<std::vector<std::string>> all_to_all(std::vector<std::string> to) override {
    if (to.size() != ranks()) return InvalidArgument("{} texts for {} ranks", to.size(), ranks());
    std::vector<int64_t> own;
    for (const std::string& text : to) own.push_back(static_cast<int64_t>(text.size()));
    std::vector<int64_t> sizes(ranks() * ranks());
    MILLRACE_RETURN_IF_ERROR(group_.all_gather(reinterpret_cast<const std::byte*>(own.data()),
                                               static_cast<int64_t>(own.size() * sizeof(int64_t)),
                                               reinterpret_cast<std::byte*>(sizes.data())));
    const auto self = static_cast<size_t>(rank());
    std::vector<std::string> from(ranks());
    for (size_t rank = 0; rank < ranks(); ++rank)
      from[rank].resize(static_cast<size_t>(sizes[rank * ranks() + self]));
    from[self] = std::move(to[self]);
    // In stage d, ranks whose numbers differ by d exchange. In each pair the lower rank sends
    // first; ranks of a chain r, r + d, r + 2d wait for each other, but never in a cycle.
    for (size_t d = 1; d < ranks(); ++d) {
      if (self >= d) MILLRACE_RETURN_IF_ERROR(swap(to[self - d], from[self - d], self - d));
      if (self + d < ranks())
        MILLRACE_RETURN_IF_ERROR(swap(to[self + d], from[self + d], self + d));
    }
    return from;
  }

 private:
  [[nodiscard]] size_t ranks() const { return static_cast<size_t>(group_.size()); }

  Status swap(const std::string& to, std::string& from, size_t other) {
    const bool sends_first = static_cast<size_t>(rank()) < other;
    for (const bool sends : {sends_first, !sends_first}) {
      const auto size = static_cast<int64_t>(sends ? to.size() : from.size());
      if (size == 0) continue;
      MILLRACE_RETURN_IF_ERROR(sends
                                   ? group_.send(bytes_of(to), size, static_cast<int>(other))
                                   : group_.receive(bytes_of(from), size, static_cast<int>(other)));
    }
    return Ok();
  }

  CollectiveGroup& group_;
};

}  // namespace
}  // namespace group_gather

std::unique_ptr<io::Gather> make_group_gather(CollectiveGroup& group) {
  return std::make_unique<group_gather::GroupGather>(group);
}

bool allows_calls_side_by_side(const CollectiveGroup& group) {
  return group.engine() != "mpi";
}

StatusOr<std::unique_ptr<CollectiveGroup>> group_of_all(CollectiveGroup& group) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.subgroup(ranks);
}

}  // namespace millrace::executor
