#pragma once

#include <string>
#include <vector>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/fleet/table_plan.h"

namespace millrace::fleet {

/// What a table's optimizer keeps, as descriptions say it.
struct CommonAccessor {
  std::string name;                       ///< sgd, adam, adam_d2sum, sum (geo), summary (data_norm)
  std::vector<std::string> params;        ///< "Param", "Moment1", ...
  std::vector<int64_t> dims;              ///< elements of each on this server
  std::vector<std::string> initializers;  ///< "uniform_random&0&-0.1&0.1"; empty: not known
  std::vector<std::string> attrs;         ///< "beta1&0.9"
};

/// The table that a description is about.
struct TableFacts {
  std::string param;  ///< its parameter; of dense tables the first
  int64_t size = 0;   ///< rows of sparse tables, elements of dense ones
  int64_t width = 1;  ///< elements of a row
  bool is_sparse = false;
  bool is_data_norm = false;
};

/// \param main, startup  the training program
/// Errors: kInvalidProgram where no op updates the parameter; kUnimplemented for an optimizer that
/// servers do not have, and a rate that the program computes. Source: spec/fleet.md section 5.
StatusOr<CommonAccessor> describe_optimizer(const Program& main, const Program& startup,
                                            const JobSpec& job, const JobRole& role,
                                            const TableFacts& table);

/// This server's share of n elements: as many as rounding up gives, the last ones less or none.
int64_t server_share(int64_t n, int servers, int index);

/// A number as the original's Python prints it: the shortest decimal of the float widened to
/// double, "0.0", "1e-08".
std::string python_number(float value);

}  // namespace millrace::fleet
