#pragma once

#include <map>
#include <memory>
#include <vector>

#include "framework/base/status.h"
#include "ps/client/client.h"
#include "ps/table/table_client.h"
#include "ps/table/typed_table.h"

namespace millrace::ps {

/// The typed tables of a job as one trainer sees them.
///
/// Thread-safety: any threads.
class TrainerTables {
 public:
  /// One of them.
  struct Entry {
    TypedTable table;
    SparseLayout layout;
  };
  /// \param tables  all on the same servers
  /// Errors: kInvalidArgument for tables on different servers, or two of one number; those of
  /// layout_of().
  static StatusOr<std::shared_ptr<TrainerTables>> create(std::shared_ptr<Client> client,
                                                         std::vector<TypedTable> tables);

  /// Errors: kNotFound with the number.
  [[nodiscard]] StatusOr<const Entry*> find(int table_id) const;
  [[nodiscard]] const std::map<int, Entry>& all() const { return entries_; }
  /// Servers of all tables, in order.
  [[nodiscard]] const std::vector<std::string>& endpoints() const { return endpoints_; }
  [[nodiscard]] TableClient& client() { return *client_; }

  /// What rows [0, height) give at present; nothing changes on the servers. Errors: those of pulls.
  StatusOr<Value> gather(const Entry& entry);

 private:
  TrainerTables() = default;

  std::map<int, Entry> entries_;
  std::vector<std::string> endpoints_;
  std::unique_ptr<TableClient> client_;
};

}  // namespace millrace::ps
