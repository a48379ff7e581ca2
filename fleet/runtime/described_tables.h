#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/slices/plan_facts.h"
#include "ps/table/table_handler.h"
#include "ps/table/typed_table.h"

namespace millrace::fleet {

/// A server's options for described tables.
struct ServerTableOptions {
  uint64_t seed = 0;
  std::string disk_path;  ///< for tables of class SSDSparseTable; empty: refused
};

/// Creates the tables in the description of a server (ps_desc.txt), with the barriers of its
/// workers. Errors: kInvalidArgument for a malformed or inconsistent description; kUnimplemented
/// for a class of tables, accessors or rules that is not supported.
StatusOr<std::unique_ptr<ps::TableHandler>> make_described_tables(
    const std::string& description, const ServerTableOptions& options);

/// Number of the table with the learning rate (ps::RateTable): the first number after the tables of
/// the description, which cannot describe it.
StatusOr<int> described_rate_table(const std::string& description);
/// Number of the table that counts the steps of all workers (ps::TensorTable): the one after.
inline int step_table_after(int rate_table) {
  return rate_table + 1;
}

/// What the descriptions of a server and of a worker of one job have in common, as facts about that
/// server: its number, the numbers of servers and workers, and the tables with their optimizers.
/// Dims of optimizer state are left out, because they depend on the role. Errors: as above.
StatusOr<ps::PlanFacts> described_facts(const std::string& description, int server, int servers,
                                        int workers);

/// A column of a dense table on the server of a description.
struct DescribedColumn {
  std::string name;        ///< "Param", or of the state of the optimizer
  bool is_scalar = false;  ///< equal on all servers
  int64_t elements = 0;    ///< on this server
};
/// The columns of the dense tables of a server's description, by number of the table; "Param" is
/// the first. Errors: as above.
StatusOr<std::map<int, std::vector<DescribedColumn>>> described_columns(
    const std::string& description);

/// The sparse tables of a description in the form that workers use. Errors: as above.
StatusOr<std::vector<ps::TypedTable>> described_sparse_tables(
    const std::string& description, const std::vector<std::string>& endpoints);

}  // namespace millrace::fleet
