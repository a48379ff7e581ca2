#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/discovery/directory.h"
#include "ps/transport/grpc.h"

namespace millrace::ps {

/// How an etcd cluster is reached, and what of it belongs to the job.
struct EtcdOptions {
  /// Members of the cluster, host:port each; one that does not answer is passed over.
  std::vector<std::string> endpoints;
  std::optional<TlsFiles> tls;
  std::string job;  ///< entries are keys "/millrace/<job>/<name>"
  /// An entry goes so long after its process has died, in full seconds.
  std::chrono::seconds lease{5};
  /// Told when an entry was lost and when it is there again; may be empty. From other threads.
  std::function<void(const std::string&)> log;
};

/// Entries as keys under leases, which a thread keeps alive (API v3). The code stands in the module
/// "etcd" (framework/base/module.h), which is loaded now; etcd itself is first asked by a member.
/// Errors: those of load_module() and of reading the PEM files; kInvalidArgument without endpoints,
/// for one that is none, or for a lease of less than 1 s.
/// Thread-safety: all members.
StatusOr<std::unique_ptr<Directory>> make_etcd_directory(const EtcdOptions& options);

/// What the module "etcd" does.
struct EtcdModule {
  decltype(&make_etcd_directory) make;
};

}  // namespace millrace::ps
