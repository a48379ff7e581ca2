#include "jobs/ps/connection.h"

#include <algorithm>
#include <utility>

#include "ps/discovery/discovering_transport.h"
#include "ps/discovery/etcd.h"

namespace millrace::jobs {
namespace {

// How long a connection is retried before the directory is asked for another address.
constexpr std::chrono::milliseconds kLookAgain{1000};

}  // namespace

StatusOr<std::shared_ptr<ps::Directory>> open_directory(const Discovery& discovery,
                                                        const LogSink& log) {
  ps::EtcdOptions options;
  options.endpoints = discovery.members;
  options.tls = discovery.tls;
  options.job = discovery.job.empty() ? "default" : discovery.job;
  options.lease = discovery.lease;
  options.log = log_at(log, LogLevel::kWarning);
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::Directory> directory,
                            ps::make_etcd_directory(options));
  return std::shared_ptr<ps::Directory>(std::move(directory));
}

StatusOr<std::shared_ptr<ps::Transport>> open_transport(const ConnectionOptions& options,
                                                        const LogSink& log, ps::Metrics* metrics) {
  const bool has_directory = !options.etcd.empty();
  ps::GrpcOptions wire;
  wire.tls = options.tls;
  wire.insecure_listen = options.insecure_listen;
  wire.max_message_bytes = options.max_message_bytes;
  wire.job_key = options.job_key;
  // With a directory, a lost server may be running at another address, so it is looked up soon.
  wire.short_first_connect = has_directory;
  wire.reconnect_timeout =
      has_directory ? std::min(options.reconnect_timeout, kLookAgain) : options.reconnect_timeout;
  wire.metrics = metrics;
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::Transport> transport,
                            ps::make_wire_transport(options.kind, wire));
  if (!has_directory) return std::shared_ptr<ps::Transport>(std::move(transport));
  MILLRACE_ASSIGN_OR_RETURN(
      std::shared_ptr<ps::Directory> directory,
      open_directory({options.etcd, options.etcd_lease, options.tls, options.job}, log));
  return ps::make_discovering_transport(
      std::move(transport), std::move(directory),
      {{options.endpoint, options.advertise}, options.reconnect_timeout});
}

}  // namespace millrace::jobs
