#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::ps {

/// What belongs together on its way between a trainer and the servers: one parameter or gradient,
/// or all dense ones of a table. The names of the fields are those of the original.
/// Source: spec/ps_runtime.md section 5.
struct CommContext {
  /// Key of the context: the name of a gradient or parameter, or of a dense table ("Dense@GRAD_1").
  std::string var_name;
  /// What the pieces are called on the servers, one an endpoint.
  std::vector<std::string> split_varnames;
  /// host:port of each piece; the same endpoint may occur several times.
  std::vector<std::string> split_endpoints;
  /// Rows (dense tables: elements) of each piece; empty if the var is not cut.
  std::vector<int64_t> sections;
  /// The trainer's vars that make up the context; empty: var_name alone.
  std::vector<std::string> origin_varnames;
  int trainer_id = 0;
  /// Values that are sent together are added up (true) or averaged (false).
  bool aggregate = true;
  bool is_sparse = false;       ///< its values are selected rows
  bool is_distributed = false;  ///< row id lives on server id mod servers, not in sections
  int table_id = -1;            ///< of the servers' typed tables; negative: a var of a program
  bool is_tensor_table = false;
  bool is_datanorm_table = false;
  int64_t program_id = -1;  ///< of jobs with several programs
  std::vector<int32_t> remote_sparse_ids;
  /// False for the learning-rate counter, which goes to all servers as a number of steps.
  bool use_send_handler = true;

  /// The trainer's vars, also where origin_varnames is empty.
  [[nodiscard]] std::vector<std::string> vars() const {
    return origin_varnames.empty() ? std::vector<std::string>{var_name} : origin_varnames;
  }
};

/// Contexts by var_name.
using CommContexts = std::map<std::string, CommContext>;

/// Context that receives the dense parameters of a typed table, in the order of the names.
CommContext dense_table_context(int table_id, std::vector<std::string> names);

/// Geo: the context that sends the deltas of a parameter, whose pieces are called as those of its
/// receive context with ".delta" behind.
CommContext delta_context(const CommContext& receive);

/// Errors: kInvalidArgument if names, endpoints and sections are not equally many.
Status check_context(const CommContext& context);

}  // namespace millrace::ps
