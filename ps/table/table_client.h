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
#include "ps/table/key_plan.h"
#include "ps/table/routing.h"
#include "ps/transport/message.h"

namespace millrace::ps {

/// One call to a server of tables.
struct TableRequest {
  size_t server = 0;  ///< by position
  Method method = Method::kPull;
  int64_t number = 0;
  std::string text;
  std::vector<RequestItem> items;
  Reply reply;
};

/// How calls reach the servers; repeats, sequence numbers and deadlines are its business.
///
/// Thread-safety: any number of calls at once.
class TableCaller {
 public:
  TableCaller() = default;
  TableCaller(const TableCaller&) = delete;
  TableCaller& operator=(const TableCaller&) = delete;
  virtual ~TableCaller() = default;

  [[nodiscard]] virtual size_t servers() const = 0;
  /// Makes the calls side by side. \returns the first error
  virtual Status call_all(std::span<TableRequest> requests) = 0;
};

/// What a client knows of a sparse table.
struct SparseLayout {
  int table_id = 0;
  int64_t shard_num = 1000;
  int pull_width = 0;   ///< floats a pull gives
  int push_width = 0;   ///< floats a push takes
  int push_labels = 0;  ///< leading floats of a push that are not added up
  std::optional<int64_t> padding;
  /// The entry policy counts accesses, so a pull for training must count once however often it is
  /// repeated.
  bool counts_accesses = false;
};

/// A trainer's view of typed tables: ids are sent once however often they occur, to the servers
/// that own them.
///
/// The last few lists of ids are remembered with how they were taken apart, since a push has the
/// ids of the pull before. Thread-safety: any threads. Errors: those of the caller and servers;
/// kInvalidArgument for sizes that do not fit.
class TableClient {
 public:
  explicit TableClient(std::shared_ptr<TableCaller> caller) : caller_(std::move(caller)) {}

  [[nodiscard]] size_t servers() const { return caller_->servers(); }
  /// Rows of the ids, ids.size() * pull_width; padding gives zeros.
  /// \param training  accesses count for the entry policy
  Status pull_sparse(const SparseLayout& table, std::span<const int64_t> ids, std::span<float> rows,
                     bool training = true);
  /// Push values of the ids, ids.size() * push_width; those of equal ids are added up.
  Status push_sparse(const SparseLayout& table, std::span<const int64_t> ids,
                     std::span<const float> values);
  /// Weights of the ids, each of which occurs once, as pulls have them.
  Status set_sparse(const SparseLayout& table, std::span<const int64_t> ids,
                    std::span<const float> rows);
  /// Values by server, those of equal ids added up but for the labels.
  struct CutRows {
    std::shared_ptr<const KeyPlan> plan;
    std::vector<Value> rows;  ///< f32 [keys of the server, width]
  };
  /// Takes values of the ids apart without sending them. \param width  floats of an id's values
  StatusOr<CutRows> cut_rows(const SparseLayout& table, std::span<const int64_t> ids,
                             std::span<const float> values, int width, int labels);
  /// Lets every server save its part of a table, or load it, in a folder below the one that it was
  /// allowed (ps/table/table_folder.h).
  /// \returns what each of them has written (ps/saving/saved_parts.h), in order of servers
  StatusOr<std::vector<std::string>> save(int table_id, const std::string& folder, int mode,
                                          bool replaces);
  Status load(int table_id, const std::string& folder);
  /// How many tables each server has loaded since it began.
  StatusOr<std::vector<int64_t>> count_loaded();
  /// Ends a day of the table on every server.
  Status shrink(int table_id);
  /// Geo: what changed since this trainer last asked; ids rise.
  Status pull_changed(const SparseLayout& table, SelectedRows& changed);

  /// All elements of a dense table, which the servers share by ranges.
  Status pull_dense(int table_id, std::span<float> values);
  Status push_dense(int table_id, std::span<const float> grads);
  Status set_dense(int table_id, std::span<const float> values);
  /// Steps for the counter of a tensor table, on every server.
  Status count_steps(int table_id, int64_t steps);
  /// The learning rate from now on, of all tables that share it (RateTable), on every server.
  Status set_rate(int table_id, float rate);
  /// Waits for the other trainers at every server; phases are counted here.
  Status barrier(const std::string& kind);
  /// This trainer comes to no barrier any more.
  Status leave();

 private:
  Status push_to_all(int table_id, const char* what, const Value& value);
  Status send_rows(const SparseLayout& table, std::span<const int64_t> ids,
                   std::span<const float> values, int width, int labels, const char* text);
  Status send_dense(int table_id, std::span<const float> values, const char* text);
  StatusOr<std::shared_ptr<const KeyPlan>> plan_of(const SparseLayout& table,
                                                   std::span<const int64_t> ids);

  std::shared_ptr<TableCaller> caller_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const KeyPlan>> plans_;  ///< the last ones, newest at the end
  std::map<std::string, int64_t> phases_;
};

}  // namespace millrace::ps
