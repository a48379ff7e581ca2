#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "api/connection.h"
#include "api/scope.h"
#include "framework/base/log.h"
#include "framework/tensor/scope.h"
#include "ps/client/client.h"
#include "ps/server/server_core.h"
#include "ps/transport/inproc.h"

/// What is inside the handles of this folder. Not installed.
namespace millrace::api {

/// What is inside a Scope; executors keep it alive.
struct Scope::State {
  millrace::Scope vars;  ///< persistable vars; has no parent
};

/// What is inside a Connection.
struct Connection::State {
  std::shared_ptr<ps::Transport> transport;
  std::shared_ptr<ps::InprocTransport> inproc;  ///< the transport; null between processes
  std::string job;
  std::chrono::milliseconds reconnect_timeout{0};  ///< of calls
  bool has_directory = false;                      ///< the transport knows where servers listen
};

/// Access of the sources of this folder to what handles refer to.
struct Internals {
  /// The vars of a scope. They live as long as the result of state().
  static millrace::Scope& vars(const Scope& scope) { return scope.state_->vars; }
  /// What keeps the vars of a scope alive.
  static std::shared_ptr<void> state(const Scope& scope) { return scope.state_; }
  static const Connection::State& state(const Connection& connection) { return *connection.state_; }
  /// Calls of a trainer by a connection. \param deadline  longest time of one call
  static ps::ClientOptions client(const Connection& connection, int trainer,
                                  std::chrono::milliseconds deadline,
                                  std::chrono::milliseconds heartbeat) {
    ps::ClientOptions options;
    options.job = connection.state_->job;
    options.trainer = trainer;
    options.deadline = deadline;
    options.heartbeat = heartbeat;
    options.reconnect_timeout = connection.state_->reconnect_timeout;
    return options;
  }
};

/// A value that holds some rows of a matrix. Errors: kInvalidArgument for other values.
StatusOr<Rows> rows_of(const std::string& name, const Value& value);

struct ServerOptions;

/// Errors: kInvalidArgument naming the option.
Status check_server_options(const ServerOptions& options);
/// The same settings for the server itself, with the job of the connection.
ps::ServerOptions service_of(const ServerOptions& options, const Connection& connection);

/// The lines with a prefix for errors and warnings; drops them if there is no receiver.
LogSink sink_of(Log log);

}  // namespace millrace::api
