#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ps/client/client.h"
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
  Status receive_changed(const CommContext& context, SelectedRows& rows,
                         Deadline deadline) override;
  Status set(const CommContext& context, std::span<const Value* const> values,
             Deadline deadline) override;
  Status barrier(CommBarrier kind, Deadline deadline) override;

 private:
  Status deliver(const CommContext& context, std::span<const Value* const> values,
                 const std::string& text);

  std::shared_ptr<Client> client_;
};

}  // namespace millrace::ps
