#include "tests/explorer/explore.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

namespace millrace::explorer {
namespace {

struct HashOf {
  size_t operator()(const std::pair<uint64_t, uint64_t>& key) const { return key.first; }
};

// All states, and how they follow each other. Only hashes of states that were visited are kept: two
// of a few million are equal with a probability below 10^-20.
class Exploration {
 public:
  Exploration(const Job& job, size_t most_states)
      : job_(job), most_states_(most_states), events_(all_events(job)) {}

  Outcome run() {
    add(State(job_), 0, 0);
    for (size_t number = 0; number < known_.size() && outcome_.violation.empty(); ++number) {
      const State state = std::move(waiting_.front());
      waiting_.pop_front();
      if (is_final(state)) {
        finals_.push_back(static_cast<uint32_t>(number));
      } else {
        expand(state, static_cast<uint32_t>(number));
      }
      if (known_.size() > most_states_) {
        outcome_.is_complete = false;
        trace_to(static_cast<uint32_t>(number));
        break;
      }
    }
    outcome_.states = known_.size();
    if (outcome_.violation.empty() && outcome_.is_complete) check_progress();
    return std::move(outcome_);
  }

 private:
  struct From {
    uint32_t state;
    uint32_t event;
  };

  void expand(const State& state, uint32_t number) {
    for (uint32_t i = 0; i < events_.size(); ++i) {
      if (!may_happen(job_, events_[i], state)) continue;
      State next = state;
      if (!happen(job_, events_[i], next)) continue;
      if (!next.violation.empty()) {
        outcome_.violation = next.violation;
        trace_to(number);
        outcome_.trace.push_back(describe(events_[i]));
        return;
      }
      const uint32_t to = add(std::move(next), number, i);
      if (to == number) continue;
      ++outcome_.events;
      if (!events_[i].is_fault()) steps_.emplace_back(to, number);
    }
  }

  uint32_t add(State state, uint32_t from, uint32_t event) {
    std::string text = text_of(state);
    const uint64_t first = std::hash<std::string>()(text);
    text.push_back('.');
    const uint64_t second = std::hash<std::string>()(text);
    const auto next = static_cast<uint32_t>(known_.size());
    const auto [place, is_new] = known_.try_emplace({first, second}, next);
    if (!is_new) return place->second;
    from_.push_back({from, event});
    waiting_.push_back(std::move(state));
    return next;
  }

  void trace_to(uint32_t state) {
    for (; state != 0; state = from_[state].state)
      outcome_.trace.push_back(describe(events_[from_[state].event]));
    std::ranges::reverse(outcome_.trace);
  }

  // Goes back from the ends. A state that is not reached, or no state at all, waits forever.
  void check_progress() {
    std::ranges::sort(steps_);
    std::vector<char> ends(known_.size(), 0);
    std::vector<uint32_t> open = finals_;
    for (const uint32_t state : finals_) ends[state] = 1;
    while (!open.empty()) {
      const uint32_t state = open.back();
      open.pop_back();
      auto step = std::ranges::lower_bound(steps_, std::pair<uint32_t, uint32_t>(state, 0));
      for (; step != steps_.end() && step->first == state; ++step) {
        if (std::exchange(ends[step->second], 1) == 0) open.push_back(step->second);
      }
    }
    std::vector<char> moves(known_.size(), 0);
    for (const auto& [to, from] : steps_) moves[from] = 1;
    // rather a state in which nothing can happen than one from which all events lead to such states
    auto stuck = known_.size();
    for (size_t state = known_.size(); state-- > 0;) {
      const bool is_better = stuck == known_.size() || moves[state] <= moves[stuck];
      if (ends[state] == 0 && is_better) stuck = state;
    }
    if (stuck == known_.size()) return;
    outcome_.violation = "without a further fault, the job never ends";
    trace_to(static_cast<uint32_t>(stuck));
  }

  const Job& job_;
  size_t most_states_;
  std::vector<Event> events_;
  std::unordered_map<std::pair<uint64_t, uint64_t>, uint32_t, HashOf> known_;
  std::deque<State> waiting_;
  std::vector<From> from_;
  std::vector<std::pair<uint32_t, uint32_t>> steps_;  ///< without a fault: to, from
  std::vector<uint32_t> finals_;
  Outcome outcome_;
};

}  // namespace

Outcome explore(const Job& job, size_t most_states) {
  return Exploration(job, most_states).run();
}

}  // namespace millrace::explorer
