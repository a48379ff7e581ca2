#pragma once

#include <map>
#include <memory>
#include <vector>

#include "framework/base/status.h"
#include "ps/client/client.h"
#include "ps/table/table_client.h"
#include "ps/table/typed_table.h"

namespace millrace::ps {

/// One trainer's view of the typed tables of a job.
///
/// Thread-safety: any threads.
class TrainerTables {
 public:
  /// A table and its layout.
  struct Entry {
    TypedTable table;
    SparseLayout layout;
  };
  /// \param tables  all on the same servers
  /// Errors: kInvalidArgument for tables on different servers, or two tables with one number; those
  /// of layout_of().
  static StatusOr<std::shared_ptr<TrainerTables>> create(std::shared_ptr<Client> client,
                                                         std::vector<TypedTable> tables);

  /// Errors: kNotFound with the number.
  [[nodiscard]] StatusOr<const Entry*> find(int table_id) const;
  [[nodiscard]] const std::map<int, Entry>& all() const { return entries_; }
  /// Servers of all tables, in the order used to partition tables.
  [[nodiscard]] const std::vector<std::string>& endpoints() const { return endpoints_; }
  [[nodiscard]] TableClient& client() { return *client_; }

  /// Pulls rows [0, height) without counting accesses or creating rows. Errors: those of pulls.
  StatusOr<Value> gather(const Entry& entry);

 private:
  TrainerTables() = default;

  std::map<int, Entry> entries_;
  std::vector<std::string> endpoints_;
  std::unique_ptr<TableClient> client_;
};

}  // namespace millrace::ps
