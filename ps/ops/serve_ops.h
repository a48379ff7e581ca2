#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "executor/compiled_ops/control.h"
#include "ps/server/service.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Runs listen_and_serv: holds what that needs besides its op, and lets other threads stop it.
class ServerRole {
 public:
  /// \param endpoint  where to listen, in place of the endpoint in the program; may be empty
  ServerRole(std::shared_ptr<Transport> transport, ServerOptions options, std::string endpoint)
      : transport_(std::move(transport)),
        options_(std::move(options)),
        endpoint_(std::move(endpoint)) {}
  ServerRole(const ServerRole&) = delete;
  ServerRole& operator=(const ServerRole&) = delete;

  /// Sets a function that is called with the endpoint as soon as the server listens.
  void on_ready(std::function<void(const std::string& endpoint)> callback) {
    ready_ = std::move(callback);
  }

  /// Sets where servers write their metrics; `metrics` must outlive this object.
  void publish_to(Metrics& metrics) { metrics_ = &metrics; }

  /// Serves until all trainers have left or stop() is called. Errors: those of Service::create()
  /// and Service::serve().
  Status serve(const executor::Runtime& runtime, const Op& op, Scope& scope);
  /// Ends serve() after the current step. Thread-safety: any thread, at any time.
  void stop();

 private:
  std::shared_ptr<Transport> transport_;
  ServerOptions options_;
  std::string endpoint_;
  std::function<void(const std::string&)> ready_;
  Metrics* metrics_ = nullptr;
  std::mutex mutex_;
  Service* running_ = nullptr;
  bool stopped_ = false;
};

/// Adds listen_and_serv, fl_listen_and_serv and heter_listen_and_serv, and the ops of large tables
/// (ps/ops/large_tables.h).
void add_server_controls(executor::ControlRegistry& registry,
                         const std::shared_ptr<ServerRole>& role);

}  // namespace millrace::ps
