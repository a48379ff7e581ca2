#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "fleet/runtime/described_tables.h"
#include "framework/base/status.h"
#include "ps/transport/transport.h"

namespace millrace::fleet {

/// A server of a fleet job: the tables of its description. It serves until every worker has
/// completed. In contrast to the original's it ends by itself.
class FleetServer final : public ps::Handler {
 public:
  /// \param workers  that complete before the server ends
  /// Errors: those of make_described_tables().
  static StatusOr<std::unique_ptr<FleetServer>> create(const std::string& description, int workers,
                                                       const ServerTableOptions& options);

  /// Serves at an endpoint until all workers have completed or stop() is called.
  /// \param on_ready  is told where it listens; may be empty
  /// Errors: those of listening.
  Status serve(ps::Transport& transport, const std::string& endpoint,
               const std::function<void(const std::string&)>& on_ready = {});
  /// Ends serve(). Thread-safety: any thread.
  void stop();
  [[nodiscard]] ps::TableHandler& tables() { return *tables_; }

  Status handle(const ps::Request& request, ps::Deadline deadline, ps::ReplySink& reply) override;

 private:
  FleetServer(std::unique_ptr<ps::TableHandler> tables, int workers)
      : tables_(std::move(tables)), workers_(static_cast<size_t>(workers)) {}

  std::unique_ptr<ps::TableHandler> tables_;
  const size_t workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> completed_;
  bool stopped_ = false;
};

}  // namespace millrace::fleet
