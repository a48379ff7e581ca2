#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ps/client/client.h"
#include "ps/client/row_cut.h"
#include "ps/communicator/sender.h"

namespace millrace::ps {

/// The Communicator's way to servers that run a program: vars are cut into the pieces of their
/// context, a call a server. Calls end by the deadline of the client, which is not above that of
/// the communicator. Contexts of typed tables are not for it (ps/table/table_sender.h).
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
  /// Pieces of values that are on their way; those of rows lie here from message to message.
  struct Cut {
    std::mutex mutex;
    RowCut rows;
    explicit Cut(llvm::ArrayRef<int64_t> sections) : rows(sections) {}
  };
  /// Calls that are being put together, and what they point to.
  struct Load {
    std::vector<Client::Call> calls;
    std::deque<std::vector<Value>> pieces;
    std::vector<std::unique_lock<std::mutex>> locks;
  };
  Status add(const CommContext& context, std::span<const Value* const> values,
             const std::string& text, Load& load);
  Status deliver(Load& load);
  Cut& cut_of(const std::string& var, llvm::ArrayRef<int64_t> sections);

  std::shared_ptr<Client> client_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Cut>> cuts_;  ///< by var
};

}  // namespace millrace::ps
