#pragma once

#include <cstdint>
#include <string>

#include "framework/base/status.h"

namespace millrace::fleet {

/// What one server of a fleet job holds, in bytes.
struct DescribedBytes {
  int64_t param_bytes = 0;  ///< parameters
  int64_t state_bytes = 0;  ///< state of optimizers, and statistics of rows
  int64_t tables = 0;       ///< tables of which the server has something
};

/// Computes what the tables of a server hold when all rows that the program declares are in use.
/// Rows of tables that grow, whose height is not declared, are not counted.
/// \param description      ps_desc.txt of the server
/// \param server, servers  its index among the servers of the job
/// Errors: those of make_described_tables() for sparse tables, accessors and rules.
StatusOr<DescribedBytes> described_bytes(const std::string& description, int server, int servers);

}  // namespace millrace::fleet
