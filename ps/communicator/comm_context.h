#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::ps {

/// A unit of transfer between a trainer and the servers: one parameter or gradient, or all dense
/// ones of a table. The names of the fields are those of the original.
/// Source: spec/ps_runtime.md section 5.
struct CommContext {
  /// Key of the context: the name of a gradient or parameter, or of a dense table ("Dense@GRAD_1").
  std::string var_name;
  /// Names of the slices on the servers, one per endpoint.
  std::vector<std::string> split_varnames;
  /// host:port of each slice; the same endpoint may occur several times.
  std::vector<std::string> split_endpoints;
  /// Rows (dense tables: elements) of each slice; empty if the var is not split.
  std::vector<int64_t> sections;
  /// The trainer's vars in this context; empty: only var_name.
  std::vector<std::string> origin_varnames;
  int trainer_id = 0;
  /// Values that are sent together are summed (true) or averaged (false).
  bool aggregate = true;
  bool is_sparse = false;       ///< its values are selected rows
  bool is_distributed = false;  ///< row `id` is on server id mod servers; sections are unused
  int table_id = -1;            ///< typed table on the servers; negative: a var of a program
  bool is_tensor_table = false;
  bool is_datanorm_table = false;
  int64_t program_id = -1;  ///< of jobs with several programs
  std::vector<int32_t> remote_sparse_ids;
  /// False for the learning-rate counter, which goes to all servers as a number of steps.
  bool use_send_handler = true;

  /// The trainer's vars: origin_varnames, or var_name if that is empty.
  [[nodiscard]] std::vector<std::string> vars() const {
    return origin_varnames.empty() ? std::vector<std::string>{var_name} : origin_varnames;
  }
};

/// Contexts by var_name.
using CommContexts = std::map<std::string, CommContext>;

/// The context that receives the dense parameters of a typed table, in the order of the names.
CommContext dense_table_context(int table_id, std::vector<std::string> names);

/// Geo: the context that sends the deltas of a parameter. Names of its slices are those of the
/// receive context with the suffix ".delta".
CommContext delta_context(const CommContext& receive);

/// Errors: kInvalidArgument if the numbers of names, endpoints and sections differ.
Status check_context(const CommContext& context);

}  // namespace millrace::ps
