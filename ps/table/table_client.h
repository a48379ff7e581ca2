#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/protocol/answers.h"
#include "ps/table/key_plan.h"
#include "ps/table/routing.h"
#include "ps/transport/message.h"

namespace millrace::ps {

/// One call to a table server.
struct TableRequest {
  size_t server = 0;  ///< index of the server
  Request request;    ///< a packed message (ps/protocol/pack.h)
  Reply reply;
};

/// Makes the calls to the servers; handles repeats, sequence numbers and deadlines.
///
/// Thread-safety: any number of concurrent calls.
class TableCaller {
 public:
  TableCaller() = default;
  TableCaller(const TableCaller&) = delete;
  TableCaller& operator=(const TableCaller&) = delete;
  virtual ~TableCaller() = default;

  [[nodiscard]] virtual size_t servers() const = 0;
  /// Makes the calls in parallel. \returns the first error
  virtual Status call_all(std::span<TableRequest> requests) = 0;
};

/// A client's description of a sparse table.
struct SparseLayout {
  int table_id = 0;
  int64_t shard_num = 1000;
  int pull_width = 0;   ///< floats that a pull returns
  int push_width = 0;   ///< floats that a push takes
  int push_labels = 0;  ///< leading floats of a push that are not added up
  std::optional<int64_t> padding;
  /// The entry policy counts accesses, so a pull for training must count once, however often it is
  /// repeated.
  bool counts_accesses = false;
};

/// A trainer's interface to typed tables. Each distinct id is sent once, to the server that owns
/// it.
///
/// The last few lists of ids are cached with their grouping by server, because a push has the same
/// ids as the previous pull. Thread-safety: any threads. Errors: those of the caller and servers;
/// kInvalidArgument for wrong sizes.
class TableClient {
 public:
  explicit TableClient(std::shared_ptr<TableCaller> caller) : caller_(std::move(caller)) {}

  [[nodiscard]] size_t servers() const { return caller_->servers(); }
  /// Pulls the rows of the ids, ids.size() * pull_width; padding reads as zeros.
  /// \param training  count the accesses for the entry policy
  Status pull_sparse(const SparseLayout& table, std::span<const int64_t> ids, std::span<float> rows,
                     bool training = true);
  /// Pushes values for the ids, ids.size() * push_width; values of equal ids are added up.
  Status push_sparse(const SparseLayout& table, std::span<const int64_t> ids,
                     std::span<const float> values);
  /// Sets the weights of the ids, which must be distinct, in the form that pulls return.
  Status set_sparse(const SparseLayout& table, std::span<const int64_t> ids,
                    std::span<const float> rows);
  /// Values by server. Values of equal ids are added up, except for the labels.
  struct RowsByServer {
    std::shared_ptr<const KeyPlan> plan;
    std::vector<Value> rows;  ///< f32 [keys of the server, width]
  };
  /// Groups values of the ids by server without sending them. \param width  floats per id
  StatusOr<RowsByServer> rows_by_server(const SparseLayout& table, std::span<const int64_t> ids,
                                        std::span<const float> values, int width, int labels);
  /// Makes every server save its rows of a table, or load them, in a folder below its allowed
  /// folder (ps/table/table_folder.h).
  /// \returns the file that each server wrote, in the order of servers
  StatusOr<std::vector<protocol::SavedFile>> save(int table_id, const std::string& folder, int mode,
                                                  bool replaces);
  Status load(int table_id, const std::string& folder);
  /// What each server has loaded since it started.
  StatusOr<std::vector<protocol::LoadedTables>> count_loaded();
  /// Ends a day of the table on every server.
  Status shrink(int table_id);
  /// Geo: rows that changed since this trainer's last call; ids are ascending.
  Status pull_changed(const SparseLayout& table, SelectedRows& changed);

  /// Pulls all elements of a dense table, which is split into one range per server.
  Status pull_dense(int table_id, std::span<float> values);
  Status push_dense(int table_id, std::span<const float> grads);
  /// One value for each server: its range of the elements of a dense table; no value where it has
  /// none.
  [[nodiscard]] StatusOr<std::vector<Value>> dense_by_server(std::span<const float> values) const;
  Status set_dense(int table_id, std::span<const float> values);
  /// Adds steps to the counter of a tensor table, on every server.
  Status count_steps(int table_id, int64_t steps);
  /// Adds one step to the counter of a tensor table on the first server.
  /// \returns the steps of all trainers there, this one included
  StatusOr<int64_t> take_step(int table_id);
  /// Sets the learning rate of all tables that share it (RateTable), on every server.
  Status set_rate(int table_id, float rate);
  /// Waits for the other trainers at every server; phases are counted by this object.
  Status barrier(CommBarrier kind);
  /// This trainer no longer takes part in barriers.
  Status leave();

 private:
  /// One request to each server.
  [[nodiscard]] std::vector<TableRequest> to_all(const Request& request) const;
  Status call_servers(const Request& request);
  Status push_to_all(int table_id, const char* what, const Value& value);
  Status send_rows(const SparseLayout& table, std::span<const int64_t> ids,
                   std::span<const float> values, int width, int labels, PushKind kind);
  Status send_dense(int table_id, std::span<const float> values, PushKind kind);
  StatusOr<std::shared_ptr<const KeyPlan>> plan_of(const SparseLayout& table,
                                                   std::span<const int64_t> ids);

  std::shared_ptr<TableCaller> caller_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const KeyPlan>> plans_;  ///< the last plans, newest at the end
  std::map<CommBarrier, int64_t> phases_;
};

}  // namespace millrace::ps
