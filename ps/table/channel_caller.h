#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ps/table/table_client.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Makes calls over channels of a transport, for servers that only have typed tables. A lost call
/// is repeated with its sequence number until the deadline.
class ChannelCaller final : public TableCaller {
 public:
  struct Options {
    Caller caller;
    std::chrono::milliseconds deadline{180'000};  ///< for one call, including repeats
    int retries = 3;
    std::chrono::milliseconds retry_pause{5};
  };
  /// Errors: those of Transport::connect(); kInvalidArgument without endpoints.
  static StatusOr<std::unique_ptr<ChannelCaller>> create(std::shared_ptr<Transport> transport,
                                                         const std::vector<std::string>& endpoints,
                                                         Options options);

  [[nodiscard]] size_t servers() const override { return channels_.size(); }
  Status call_all(std::span<TableRequest> requests) override;

 private:
  ChannelCaller(std::shared_ptr<Transport> transport, Options options)
      : transport_(std::move(transport)), options_(std::move(options)) {}
  Status call(TableRequest& request);

  std::shared_ptr<Transport> transport_;
  Options options_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<std::atomic<uint64_t>>> sequences_;  ///< one per server
};

}  // namespace millrace::ps
