#include "tests/simulation/checker.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace millrace::simulation {

float Checker::cell(const executor::NamedValues& values, const Slice& slice, int trainer,
                    int64_t step) {
  const auto found = values.find(slice.param);
  const Tensor* const tensor = found == values.end() ? nullptr : found->second.get_if<Tensor>();
  if (tensor == nullptr || tensor->numel() < int64_t{slice.end} * kColumns) {
    add(fmt::format("'{}' has no value", slice.param));
    return 0;
  }
  const int64_t column = int64_t{trainer} * job_.steps + step;
  const float first = tensor->data<float>()[slice.begin * kColumns + column];
  for (int row = slice.begin; row < slice.end; ++row) {
    if (tensor->data<float>()[row * kColumns + column] != first)
      add(fmt::format("rows of one slice of '{}' differ: torn update", slice.param));
  }
  return first;
}

// The mean of the updates of some trainers: each of them once.
void Checker::check_mean(const std::string& where, int64_t step, const std::vector<float>& cells) {
  const auto count = cells.size() - static_cast<size_t>(std::ranges::count(cells, 0.0F));
  for (size_t t = 0; t < cells.size(); ++t) {
    const float wanted = count == 0 ? 0 : -kUpdate / static_cast<float>(count);
    if (cells[t] != 0 && cells[t] != wanted)
      add(fmt::format("{}: the update of trainer {} in step {} is {}, expected {}: applied {}",
                      where, t, step, cells[t], wanted,
                      cells[t] < wanted ? "more than once" : "in part"));
  }
}

void Checker::check_members(int viewer, int64_t step, const executor::NamedValues& values) {
  for (size_t s = 0; s < std::size(kSlices); ++s) {
    const std::string where = fmt::format("'{}' from row {}", kSlices[s].param, kSlices[s].begin);
    std::vector<float> cells;
    for (int t = 0; t < job_.trainers; ++t) cells.push_back(cell(values, kSlices[s], t, step));
    check_mean(where, step, cells);
    std::set<int> members;
    for (int t = 0; t < job_.trainers; ++t)
      if (cells[static_cast<size_t>(t)] != 0) members.insert(t);
    const auto [known, is_new] = members_.try_emplace({s, step}, members);
    if (!is_new && known->second != members)
      add(fmt::format(
          "{}: step {} has updates of trainers {}, but of {} before; trainer {} sees it", where,
          step, members, known->second, viewer));
    for (int t = 0; t < job_.trainers; ++t) {
      if (completed_.contains({t, step}) && !members.contains(t))
        add(fmt::format("{}: the update of trainer {} in step {}, which it completed, is lost",
                        where, t, step));
    }
    if (members_.at({0, step}) != members)
      add(
          fmt::format("servers disagree: step {} has updates of trainers {} in one slice, of {} in "
                      "another",
                      step, members_.at({0, step}), members));
  }
}

void Checker::saw_step(int trainer, int64_t step, const executor::NamedValues& values) {
  completed_.insert({trainer, step});
  check_view(trainer, step, values);
}

void Checker::check_view(int trainer, int64_t step, const executor::NamedValues& values) {
  for (int64_t k = 0; k < job_.steps; ++k) {
    if (job_.elastic && k <= step) {
      check_members(trainer, k, values);
      continue;
    }
    const float wanted = k > step ? 0 : -kUpdate / static_cast<float>(job_.trainers);
    for (const Slice& slice : kSlices) {
      for (int t = 0; t < job_.trainers; ++t) {
        const float found = cell(values, slice, t, k);
        if (found == wanted) continue;
        add(
            fmt::format("after step {}, trainer {} sees {} of the update of trainer {} in step {} "
                        "on '{}' from row {}, expected {}: {}",
                        step, trainer, found, t, k, slice.param, slice.begin, wanted,
                        found > wanted ? "lost" : "applied twice or too early"));
      }
    }
  }
}

void Checker::went_back(int64_t step) {
  std::erase_if(members_, [&](const auto& entry) { return entry.first.second >= step; });
  std::erase_if(completed_, [&](const auto& entry) { return entry.second >= step; });
}

void Checker::saw_end(int trainer, const executor::NamedValues& values) {
  if (job_.mode != Mode::kSync) {
    ends_[trainer] = all_cells(values);
    return;
  }
  check_view(trainer, job_.steps - 1, values);
}

void Checker::judge_end(int viewer, const std::vector<float>& cells, const std::set<int>& may_lose,
                        const std::vector<int>& starts) {
  size_t at = 0;
  for (const Slice& slice : kSlices) {
    for (int t = 0; t < job_.trainers; ++t) {
      for (int64_t k = 0; k < job_.steps; ++k) {
        const float found = cells[at++];
        if (is_whole(found, starts[static_cast<size_t>(t)]) ||
            (may_lose.contains(t) && may_be_lost(found)))
          continue;
        add(
            fmt::format("at the end, trainer {} sees {} of the update of trainer {} in step {} on "
                        "'{}' from row {}: {}",
                        viewer, found, t, k, slice.param, slice.begin,
                        found == 0 ? "lost" : "not applied once"));
      }
    }
  }
}

void Checker::judge_ends(const std::set<int>& may_lose, const std::vector<int>& starts) {
  for (const auto& [trainer, cells] : ends_) {
    judge_end(trainer, cells, may_lose, starts);
    if (may_lose.empty() && cells != ends_.begin()->second)
      add(fmt::format("at the end, trainers {} and {} see other parameters", ends_.begin()->first,
                      trainer));
  }
}

// What a geo trainer sends after a push was lost makes up for a part of it.
bool Checker::may_be_lost(float found) const {
  return found == 0 || (job_.mode == Mode::kGeo && found < 0 && found >= -kUpdate);
}

// A geo trainer sends 1/n of the distance from the servers' parameters each time; the rest stays in
// its own, so later pushes send 1/n of that rest.
bool Checker::is_whole(float found, int starts) const {
  constexpr float kError = 1e-3F;
  if (job_.mode != Mode::kGeo) {
    const float times = -found / kUpdate;
    return times >= 1 && times <= static_cast<float>(starts) &&
           std::abs(times - std::round(times)) < kError;
  }
  if (starts > 1) return found < 0;
  float rest = kUpdate;
  for (int64_t push = 0; push <= job_.steps; ++push) {
    rest -= rest / static_cast<float>(job_.trainers);
    if (std::abs(found + (kUpdate - rest)) < kError) return true;
  }
  return false;
}

std::vector<float> Checker::all_cells(const executor::NamedValues& values) {
  std::vector<float> all;
  for (const Slice& slice : kSlices)
    for (int t = 0; t < job_.trainers; ++t)
      for (int64_t k = 0; k < job_.steps; ++k) all.push_back(cell(values, slice, t, k));
  return all;
}

}  // namespace millrace::simulation
