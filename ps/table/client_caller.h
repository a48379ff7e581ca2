#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ps/client/client.h"
#include "ps/table/table_client.h"

namespace millrace::ps {

/// Makes calls through a trainer's Client, so that typed tables and vars of programs can be on the
/// same servers and share sequence numbers, epochs and threads.
class ClientCaller final : public TableCaller {
 public:
  /// \param endpoints  of the servers, in the order used to partition tables
  ClientCaller(std::shared_ptr<Client> client, std::vector<std::string> endpoints)
      : client_(std::move(client)), endpoints_(std::move(endpoints)) {}

  [[nodiscard]] size_t servers() const override { return endpoints_.size(); }
  Status call_all(std::span<TableRequest> requests) override;

 private:
  std::shared_ptr<Client> client_;
  std::vector<std::string> endpoints_;
};

}  // namespace millrace::ps
