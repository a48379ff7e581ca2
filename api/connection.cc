#include "api/connection.h"

#include <utility>

#include "api/internals.h"
#include "framework/base/errors.h"
#include "io/job_key.h"
#include "jobs/ps/connection.h"
#include "ps/transport/inproc.h"

namespace millrace::api {
namespace {

ps::WireKind wire_kind(WireKind kind) {
  if (kind == WireKind::kGrpc) return ps::WireKind::kGrpc;
  return kind == WireKind::kTcp ? ps::WireKind::kTcp : ps::WireKind::kAuto;
}

}  // namespace

LogSink sink_of(Log log) {
  if (!log) return ignore_log;
  return [log = std::move(log)](LogLevel level, std::string_view line) {
    const char* const prefix = level == LogLevel::kError     ? "error: "
                               : level == LogLevel::kWarning ? "warning: "
                                                             : "";
    log(prefix + std::string(line));
  };
}

Connection::Connection(std::shared_ptr<State> state) : state_(std::move(state)) {}
Connection::Connection(const Connection&) = default;
Connection& Connection::operator=(const Connection&) = default;
Connection::~Connection() = default;

Connection Connection::in_process(const std::string& job) {
  auto inproc = std::make_shared<ps::InprocTransport>();
  auto state = std::make_shared<State>();
  state->transport = inproc;
  state->inproc = std::move(inproc);
  state->job = job;
  return Connection(std::move(state));
}

StatusOr<Connection> Connection::open(const ConnectionOptions& options) {
  if (options.etcd.empty() && (!options.endpoint.empty() || !options.advertise.empty()))
    return InvalidArgument("options.endpoint and options.advertise need options.etcd");
  jobs::ConnectionOptions settings;
  settings.job = options.job;
  settings.kind = wire_kind(options.kind);
  if (options.tls)
    settings.tls = ps::TlsFiles{options.tls->authority, options.tls->certificate, options.tls->key,
                                options.tls->server_name};
  if (!options.job_key_file.empty()) {
    if (options.tls) return InvalidArgument("options.job_key_file: not together with options.tls");
    MILLRACE_ASSIGN_OR_RETURN(settings.job_key, io::JobKey::read(options.job_key_file));
  }
  settings.insecure_listen = options.insecure_listen;
  settings.reconnect_timeout = options.reconnect_timeout;
  settings.max_message_bytes = options.max_message_bytes;
  settings.etcd = options.etcd;
  settings.etcd_lease = options.etcd_lease;
  settings.endpoint = options.endpoint;
  settings.advertise = options.advertise;
  auto state = std::make_shared<State>();
  MILLRACE_ASSIGN_OR_RETURN(state->transport, jobs::open_transport(settings, sink_of(options.log)));
  state->job = options.job;
  state->reconnect_timeout = options.reconnect_timeout;
  state->has_directory = !options.etcd.empty();
  state->encrypts = options.tls.has_value();
  state->key = settings.job_key;
  return Connection(std::move(state));
}

const std::string& Connection::job() const {
  return state_->job;
}

void Connection::close() {
  if (state_->inproc != nullptr) state_->inproc->close();
}

}  // namespace millrace::api
