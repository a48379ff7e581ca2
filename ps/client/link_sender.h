#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ps/client/by_server.h"
#include "ps/client/client.h"
#include "ps/communicator/sender.h"
#include "ps/slices/slicer.h"

namespace millrace::ps {

/// The Sender for servers that run a program. Splits vars into the slices of their context and
/// makes one call per server. Calls end by the deadline of the client, which must not exceed that
/// of the communicator. Contexts of typed tables are sent by another class
/// (ps/table/table_sender.h).
class LinkSender final : public Sender {
 public:
  explicit LinkSender(std::shared_ptr<Client> client) : client_(std::move(client)) {}

  Status send(const CommContext& context, std::span<Value> values, Deadline deadline) override;
  Status receive(const CommContext& context, std::span<Value> values, Deadline deadline) override;
  Status send_all(std::span<const Parcel> parcels, Deadline deadline) override;
  Status receive_all(std::span<const Parcel> parcels, Deadline deadline) override;
  [[nodiscard]] bool adds_up_rows() const override { return true; }
  Status receive_changed(const CommContext& context, SelectedRows& rows,
                         Deadline deadline) override;
  Status set(const CommContext& context, std::span<const Value* const> values,
             Deadline deadline) override;
  Status barrier(CommBarrier kind, Deadline deadline) override;

 private:
  /// Slices of the rows being sent. Their memory is reused from message to message.
  struct RowSlices {
    std::mutex mutex;
    Slicer rows;
    explicit RowSlices(llvm::ArrayRef<int64_t> heights) : rows(heights, Repeats::kAddUp) {}
  };
  /// Vars for each server, and the values that they point to.
  struct Load {
    ByServer<SentVars> sent;
    std::deque<Slicer> tensors;  ///< slices of tensors: views
    std::vector<std::unique_lock<std::mutex>> locks;
  };
  Status add(const CommContext& context, std::span<const Value* const> values, Load& load);
  Status deliver(Load& load, SendKind kind);
  RowSlices& rows_of(const std::string& var, llvm::ArrayRef<int64_t> heights);

  std::shared_ptr<Client> client_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<RowSlices>> rows_;  ///< by var
};

}  // namespace millrace::ps
