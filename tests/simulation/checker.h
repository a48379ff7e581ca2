#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "tests/simulation/case.h"
#include "tests/simulation/programs.h"

namespace millrace::simulation {

/// Compares what trainers see of the parameters with a model: each update of a trainer and step is
/// applied once, on all slices, and all see the same. What does not fit is a finding.
class Checker {
 public:
  explicit Checker(const Case& job) : job_(job) {}
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// A trainer has completed a step of a synchronous job, and has these parameters.
  void saw_step(int trainer, int64_t step, const executor::NamedValues& values);
  /// A trainer repeats the steps from this one on.
  void went_back(int64_t step);
  /// A trainer has read the parameters after the end of all trainers.
  void saw_end(int trainer, const executor::NamedValues& values);
  /// Judges what trainers of an asynchronous job have read at the end.
  /// \param may_lose  trainers whose updates may be missing: they were lost or killed, or a server
  ///                  was
  /// \param starts  by trainer: one that started again sends its updates again
  void judge_ends(const std::set<int>& may_lose, const std::vector<int>& starts);

  void add(std::string finding) { findings_.insert(std::move(finding)); }
  [[nodiscard]] const std::set<std::string>& findings() const { return findings_; }

 private:
  /// The update of one trainer and step, as a slice has it.
  [[nodiscard]] float cell(const executor::NamedValues& values, const Slice& slice, int trainer,
                           int64_t step);
  void judge_end(int viewer, const std::vector<float>& cells, const std::set<int>& may_lose,
                 const std::vector<int>& starts);
  void check_view(int viewer, int64_t step, const executor::NamedValues& values);
  /// True for an update that an asynchronous job has applied once.
  [[nodiscard]] bool is_whole(float found, int starts) const;
  [[nodiscard]] bool may_be_lost(float found) const;
  [[nodiscard]] std::vector<float> all_cells(const executor::NamedValues& values);
  void check_members(int viewer, int64_t step, const executor::NamedValues& values);
  void check_mean(const std::string& where, int64_t step, const std::vector<float>& cells);

  const Case& job_;
  std::set<std::string> findings_;
  /// By slice and step: whose updates it has. Elastic jobs only.
  std::map<std::pair<size_t, int64_t>, std::set<int>> members_;
  std::map<int, std::vector<float>> ends_;       ///< by trainer: what it read at the end
  std::set<std::pair<int, int64_t>> completed_;  ///< trainer, step
};

}  // namespace millrace::simulation
