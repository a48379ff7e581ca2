#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::tools {

/// What a trainer has besides the parameters of its servers: persistable variables of its program
/// that no server holds, such as the means of batch norms. Copies of those that steps change are
/// kept, so that a trainer can go back.
class LocalState {
 public:
  using Values = std::map<std::string, Value>;

  /// \param slices  what the servers hold
  LocalState(const Program& program, const transpiler::SlicesFile& slices);

  /// Keeps what the variables are before a step; the oldest copies go where they are many.
  Status keep(int64_t step, const Scope& scope);
  /// Copies of all local variables, also of those that no step changes.
  StatusOr<Values> copy(const Scope& scope) const;
  /// Puts the local variables where they were before a step. \param rest  of those that no step
  /// changes. Errors: kDistributed if the copies of that step are gone.
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
  std::vector<std::string> changing_;  // of the local ones
  std::deque<Kept> kept_;
};

}  // namespace millrace::tools
