#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/explorer/model.h"

namespace millrace::explorer {

/// What exploring a job has found.
struct Outcome {
  size_t states = 0;
  size_t events = 0;               ///< from a state to another one
  bool is_complete = true;         ///< false: there are more states than the limit
  std::string violation;           ///< empty: none
  std::vector<std::string> trace;  ///< the fewest events that lead to the violation
};

/// Visits all states of a job, those that take fewer events first, until one violates what must
/// hold; then checks that from each state all processes can end without a further fault.
/// \param most_states  gives up after that many
Outcome explore(const Job& job, size_t most_states);

}  // namespace millrace::explorer
