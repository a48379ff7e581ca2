#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/case.h"

namespace millrace::simulation {

/// What a run of a case showed.
struct Outcome {
  std::vector<std::string> findings;  ///< empty: the promises held
  uint64_t hash = 0;                  ///< of all events: equal for equal cases
  int64_t steps = 0;                  ///< calls of thread functions
  int64_t switches = 0;               ///< between threads
  Time time = 0;                      ///< virtual
  std::string results;                ///< how each process ended
};

/// Runs a case in this process of the operating system, with files below the folder. Call it once
/// in a process: threads of killed processes stay. If the run cannot end, `stuck` is called with
/// the outcome so far, and must not return.
/// \param notes  receives the events in order; may be null
Outcome run_case(const Case& job, const std::string& folder, std::vector<std::string>* notes,
                 const std::function<void(const Outcome&)>& stuck);

}  // namespace millrace::simulation
