#include "executor/overlap/groups.h"

#include <algorithm>

#include <llvm/ADT/SmallVector.h>

namespace millrace::executor {
namespace {

constexpr size_t kLongest = 256;
// Estimates are rough, and the threads have to synchronize: a group must save at least this much.
constexpr double kLeastGain_us = 20;
constexpr double kLeastShare = 0.05;
// Cost of taking an op and updating the ops that wait for it.
constexpr double kStep_us = 0.2;

// Assigns ops in order, each to the thread on which it can begin first.
class Simulation {
 public:
  Simulation(const Dependencies& dependencies, int threads, size_t first)
      : dependencies_(dependencies), free_at_(static_cast<size_t>(threads), 0), first_(first) {}

  // Time at which all ops up to this one are done.
  double add(size_t op, double us) {
    double ready = 0;
    for (const int32_t before : dependencies_.before(op)) {
      if (static_cast<size_t>(before) >= first_)
        ready = std::max(ready, done_at_[static_cast<size_t>(before) - first_]);
    }
    // of those that can begin at once, the one that was busy until last: its cache has the data
    double* best = free_at_.begin();
    for (double& lane : free_at_) {
      const double start = std::max(lane, ready);
      const double start_of_best = std::max(*best, ready);
      if (start < start_of_best || (start == start_of_best && lane > *best)) best = &lane;
    }
    *best = std::max(*best, ready) + us + kStep_us;
    done_at_.push_back(*best);
    end_ = std::max(end_, *best);
    return end_;
  }

 private:
  const Dependencies& dependencies_;
  llvm::SmallVector<double, 16> free_at_;
  llvm::SmallVector<double, 0> done_at_;
  size_t first_;
  double end_ = 0;
};

}  // namespace

std::vector<Group> choose_groups(llvm::ArrayRef<OpWork> work, const Dependencies& dependencies,
                                 int threads) {
  // least time of the first i ops, and the start of the group that ends there; i: no group
  std::vector<double> least(work.size() + 1, 0);
  std::vector<size_t> from(work.size() + 1);
  for (size_t i = 1; i <= work.size(); ++i) least[i] = -1;
  for (size_t i = 0; i < work.size(); ++i) {
    const double alone = least[i] + work[i].all_us;
    if (least[i + 1] < 0 || alone <= least[i + 1]) {
      least[i + 1] = alone;
      from[i + 1] = i + 1;
    }
    if (threads < 2) continue;
    Simulation simulation(dependencies, threads, i);
    double in_turn = 0;
    for (size_t k = i; k < work.size() && k < i + kLongest && !work[k].alone; ++k) {
      in_turn += work[k].all_us;
      const double side_by_side = simulation.add(k, work[k].one_us);
      const double gain = in_turn - side_by_side;
      if (gain < kLeastGain_us || gain < kLeastShare * in_turn) continue;
      const double total = least[i] + side_by_side;
      if (least[k + 1] >= 0 && total >= least[k + 1]) continue;
      least[k + 1] = total;
      from[k + 1] = i;
    }
  }
  std::vector<Group> groups;
  for (size_t end = work.size(); end > 0;) {
    const size_t first = from[end];
    if (first == end) {
      --end;
      continue;
    }
    double in_turn = 0;
    for (size_t k = first; k < end; ++k) in_turn += work[k].all_us;
    groups.push_back({static_cast<int32_t>(first), static_cast<int32_t>(end),
                      in_turn - (least[end] - least[first])});
    end = first;
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

}  // namespace millrace::executor
