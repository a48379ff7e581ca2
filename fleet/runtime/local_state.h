#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::fleet {

/// The state of a trainer other than the parameters of its servers: persistable variables of its
/// program that no server holds, such as the running means of batch norms. Keeps copies of the
/// variables that steps change, so that a trainer can go back to an earlier step.
class LocalState {
 public:
  using Values = std::map<std::string, Value>;

  /// \param slices  the slices that the servers hold
  LocalState(const Program& program, const transpiler::SlicesFile& slices);
  /// \param remote  names of the variables that the servers hold
  LocalState(const Program& program, const std::set<std::string>& remote);

  /// Keeps at most this many copies, whatever their size.
  void keep_at_most(size_t copies) { most_ = copies; }
  /// Copies the variables before a step, unless the last copy is of the same step. Drops the oldest
  /// copies when the limit is exceeded.
  Status keep(int64_t step, const Scope& scope);
  /// Copies of all local variables, including those that no step changes.
  StatusOr<Values> copy(const Scope& scope) const;
  /// Restores the local variables to their values before a step. \param rest  values of the
  /// variables that no step changes. Errors: kDistributed if the copies of that step no longer
  /// exist.
  Status restore(int64_t step, Values rest, Scope& scope);
  /// Variables of the program that servers hold.
  [[nodiscard]] const std::vector<std::string>& remote() const { return remote_; }

 private:
  struct Kept {
    int64_t step = 0;
    Values values;
  };

  std::vector<std::string> remote_;
  std::vector<std::string> local_;
  std::vector<std::string> changing_;  // subset of the local variables
  std::deque<Kept> kept_;
  std::optional<size_t> most_;  // none: by the size of the copies
};

/// Names of the vars that a startup program receives from servers, also those that it joins from
/// received slices. Thread-safety: pure.
std::set<std::string> received_by(const Program& startup);

/// Puts values into a scope, which keeps nothing of its own of these vars.
/// \returns the names for which the scope had another tensor
std::vector<std::string> put_back(LocalState::Values&& values, Scope& scope);

}  // namespace millrace::fleet
