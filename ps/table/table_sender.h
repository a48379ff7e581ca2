#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ps/client/trainer_link.h"
#include "ps/communicator/sender.h"
#include "ps/table/table_client.h"

namespace millrace::ps {

/// The Sender for servers with typed tables: a context belongs to the table of its table_id. Vars
/// of a dense table are concatenated in the order of the context.
///
/// In steps of synchronous servers (send_in_steps()), gradients are kept until a kSend barrier,
/// which sends them with the send barrier of the step and returns when the step is applied.
///
/// For tables with shows and clicks, every row of a gradient counts as one show without a click, in
/// slot 0. Deadlines are those of the client's caller.
class TableSender final : public Sender {
 public:
  /// \param layouts  sparse tables by id; other ids are dense tables or step counters
  TableSender(std::shared_ptr<TableClient> client, std::map<int, SparseLayout> layouts)
      : client_(std::move(client)), layouts_(std::move(layouts)) {}

  Status send(const CommContext& context, std::span<Value> values, Deadline deadline) override;
  Status receive(const CommContext& context, std::span<Value> values, Deadline deadline) override;
  Status receive_changed(const CommContext& context, SelectedRows& rows,
                         Deadline deadline) override;
  Status set(const CommContext& context, std::span<const Value* const> values,
             Deadline deadline) override;
  Status barrier(CommBarrier kind, Deadline deadline) override;

  /// Sends gradients in steps. \param endpoints  of all servers, in the order of the client
  void send_in_steps(std::shared_ptr<TrainerLink> link, std::vector<std::string> endpoints) {
    link_ = std::move(link);
    endpoints_ = std::move(endpoints);
  }

  /// Declares the dims of a dense table's var, which receive() needs if the trainer's var has none
  /// yet.
  void declare(const std::string& var, Dims dims) { dims_[var] = std::move(dims); }

 private:
  StatusOr<const SparseLayout*> layout_of(const CommContext& context) const;
  Status send_rows(const SparseLayout& layout, const SelectedRows& rows);
  Status receive_rows(const SparseLayout& layout, Tensor& table);
  Status set_rows(const SparseLayout& layout, const Tensor& table);
  Status keep(int table_id, std::span<const float> grads);
  Status finish_step();

  std::shared_ptr<TableClient> client_;
  std::map<int, SparseLayout> layouts_;
  std::map<std::string, Dims> dims_;
  std::shared_ptr<TrainerLink> link_;  ///< null: gradients are sent at once
  std::vector<std::string> endpoints_;
  std::mutex mutex_;
  /// By dense table: gradients for each server, which stay until the step is applied.
  std::map<int, std::vector<Value>> kept_;
};

}  // namespace millrace::ps
