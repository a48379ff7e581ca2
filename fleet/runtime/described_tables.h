#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/table/table_handler.h"
#include "ps/table/typed_table.h"

namespace millrace::fleet {

/// What a server adds to a description of tables.
struct ServerTableOptions {
  uint64_t seed = 0;
  std::string disk_path;  ///< folder of tables of class SSDSparseTable; empty: refused
};

/// Makes the tables that the description of a server says (ps_desc.txt), with the barrier of its
/// workers. Errors: kInvalidArgument for a description that cannot be read or says nonsense;
/// kUnimplemented for a class of tables, accessors or rules that servers here do not have.
StatusOr<std::unique_ptr<ps::TableHandler>> make_described_tables(
    const std::string& description, const ServerTableOptions& options);

/// Number of the table that holds the learning rate (ps::RateTable): it follows those of the
/// description, which has no word for it.
StatusOr<int> described_rate_table(const std::string& description);

/// The sparse tables of a description as workers use them. Errors: as above.
StatusOr<std::vector<ps::TypedTable>> described_sparse_tables(
    const std::string& description, const std::vector<std::string>& endpoints);

}  // namespace millrace::fleet
