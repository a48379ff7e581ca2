#include "transpiler/distribute/dispatcher.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include <llvm/Support/xxhash.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::transpiler {
namespace {

class RoundRobin final : public Dispatcher {
 public:
  explicit RoundRobin(size_t servers) : servers_(servers) {}
  std::vector<int32_t> dispatch(llvm::ArrayRef<Placeable> slices) override {
    std::vector<int32_t> out;
    for (size_t i = 0; i < slices.size(); ++i)
      out.push_back(static_cast<int32_t>(next_++ % servers_));
    return out;
  }
  void reset() override { next_ = 0; }

 private:
  size_t servers_;
  size_t next_ = 0;
};

// Records which servers hold a slice of each variable, to place slices of one variable on different
// servers.
class Occupancy {
 public:
  explicit Occupancy(size_t servers) : servers_(servers) {}
  [[nodiscard]] bool taken(size_t variable, size_t server) const {
    return taken_.count({variable, server}) > 0;
  }
  void take(size_t variable, size_t server) {
    if (++count_[variable] % servers_ == 0) {
      // Every server holds a slice: start over.
      for (size_t s = 0; s < servers_; ++s) taken_.erase({variable, s});
      return;
    }
    taken_.insert({variable, server});
  }
  void clear() {
    taken_.clear();
    count_.clear();
  }

 private:
  size_t servers_;
  std::set<std::pair<size_t, size_t>> taken_;
  std::map<size_t, size_t> count_;
};

class HashName final : public Dispatcher {
 public:
  explicit HashName(size_t servers) : servers_(servers), occupancy_(servers) {}
  std::vector<int32_t> dispatch(llvm::ArrayRef<Placeable> slices) override {
    std::vector<int32_t> out;
    for (const Placeable& slice : slices) {
      size_t server = llvm::xxHash64(slice.name) % servers_;
      while (occupancy_.taken(slice.variable, server)) server = (server + 1) % servers_;
      occupancy_.take(slice.variable, server);
      out.push_back(static_cast<int32_t>(server));
    }
    return out;
  }
  void reset() override { occupancy_.clear(); }

 private:
  size_t servers_;
  Occupancy occupancy_;
};

class Balanced final : public Dispatcher {
 public:
  explicit Balanced(size_t servers)
      : servers_(servers), occupancy_(servers), bytes_(servers), work_(servers) {}

  std::vector<int32_t> dispatch(llvm::ArrayRef<Placeable> slices) override {
    double total_bytes = 0;
    double total_work = 0;
    for (const Placeable& slice : slices) {
      total_bytes += static_cast<double>(slice.bytes);
      total_work += slice.work;
    }
    // As shares of the totals, bytes and work are comparable.
    const auto share = [](double part, double total) { return total > 0 ? part / total : 0.0; };
    const auto weight = [&](const Placeable& slice) {
      return std::max(share(static_cast<double>(slice.bytes), total_bytes),
                      share(slice.work, total_work));
    };
    std::vector<size_t> order(slices.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return weight(slices[a]) > weight(slices[b]); });
    // The least loaded server comes first.
    std::set<std::pair<double, size_t>> queue;
    const auto load = [&](size_t s) {
      return std::max(share(bytes_[s], total_bytes), share(work_[s], total_work));
    };
    for (size_t s = 0; s < servers_; ++s) queue.insert({load(s), s});
    std::vector<int32_t> out(slices.size());
    for (const size_t i : order) {
      const Placeable& slice = slices[i];
      auto it = queue.begin();
      while (occupancy_.taken(slice.variable, it->second)) ++it;
      const size_t server = it->second;
      queue.erase(it);
      bytes_[server] += static_cast<double>(slice.bytes);
      work_[server] += slice.work;
      queue.insert({load(server), server});
      occupancy_.take(slice.variable, server);
      out[i] = static_cast<int32_t>(server);
    }
    return out;
  }
  void reset() override {
    occupancy_.clear();
    std::fill(bytes_.begin(), bytes_.end(), 0.0);
    std::fill(work_.begin(), work_.end(), 0.0);
  }

 private:
  size_t servers_;
  Occupancy occupancy_;
  std::vector<double> bytes_;
  std::vector<double> work_;
};

}  // namespace

StatusOr<std::unique_ptr<Dispatcher>> make_dispatcher(const std::string& split_method,
                                                      size_t servers) {
  if (servers == 0)
    return InvalidArgument("split_method '{}' needs at least one server", split_method);
  if (split_method == "RoundRobin") return std::unique_ptr<Dispatcher>(new RoundRobin(servers));
  if (split_method == "HashName") return std::unique_ptr<Dispatcher>(new HashName(servers));
  if (split_method == "Balanced") return std::unique_ptr<Dispatcher>(new Balanced(servers));
  constexpr std::array<std::string_view, 3> kKnown = {"RoundRobin", "HashName", "Balanced"};
  const std::string nearest = nearest_name(split_method, kKnown);
  Status status = InvalidArgument(
      "split_method '{}' is unknown (expected RoundRobin, HashName or Balanced)", split_method);
  if (nearest.empty()) return status;
  return std::move(status).with_hint("did you mean '" + nearest + "'?");
}

}  // namespace millrace::transpiler
