#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::fleet {

/// Optimizer state of a table, in the form of descriptions.
struct CommonAccessor {
  /// sgd, adam, adam_d2sum, sum (geo), summary (data_norm); else the update op, such as momentum
  std::string name;
  std::vector<std::string> params;        ///< "Param", "Moment1", ...
  std::vector<int64_t> dims;              ///< elements of each column on this server
  std::vector<std::string> initializers;  ///< "uniform_random&0&-0.1&0.1"; empty: unknown
  std::vector<std::string> attrs;         ///< "beta1&0.9"
  float rate_factor = 1;                  ///< of the parameter's own learning rate
  /// Clipping by value and regularization of an embedding; other parameters: none.
  std::optional<float> clip_min, clip_max;
  float l1 = 0, l2 = 0;
  /// One process changes all rows of the embedding in every step, by the optimizer or by decay.
  bool moves_all_rows = false;

  /// True if the same update belongs to both: all but the initial values of the parameters.
  [[nodiscard]] bool updates_like(const CommonAccessor& other) const;
};

/// A table to be described.
struct TableFacts {
  std::string param;  ///< its parameter; for dense tables the first
  int64_t size = 0;   ///< rows (sparse) or elements (dense)
  int64_t width = 1;  ///< elements of a row
  bool is_sparse = false;
  bool is_data_norm = false;
};

/// The learning rate of a job.
struct JobRate {
  std::string var;
  bool is_computed = false;  ///< by ops of the program
};
/// The rate of the first update, without a factor of its parameter; that of other parameters must
/// be a multiple. Empty for a program without updates.
JobRate job_rate(const Program& main);

/// Describes the optimizer of a table. A rate that the program computes is described as 1.
/// \param main, startup  the training program
/// Errors: kInvalidProgram if no op updates the parameter; kUnimplemented for an optimizer that
/// servers do not support, state that does not start with a constant, or a rate that is not a
/// multiple of job_rate(), or depends on more than steps. Source: spec/fleet.md section 5.
StatusOr<CommonAccessor> describe_optimizer(const Program& main, const Program& startup,
                                            const JobSpec& job, const JobRole& role,
                                            const TableFacts& table);

/// Formats a number as the original's Python does: the shortest decimal of the float widened to
/// double, "0.0", "1e-08".
std::string python_number(float value);

}  // namespace millrace::fleet
