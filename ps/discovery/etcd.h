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

/// How to reach an etcd cluster, and which of its keys belong to the job.
struct EtcdOptions {
  /// Members of the cluster, host:port each; a member that does not respond is skipped.
  std::vector<std::string> endpoints;
  std::optional<TlsFiles> tls;
  std::string job;  ///< entries are keys "/millrace/<job>/<name>"
  /// Time to live of an entry after its process has died, in whole seconds.
  std::chrono::seconds lease{5};
  /// Called when an entry was lost and when it is registered again; may be empty. Called from other
  /// threads.
  std::function<void(const std::string&)> log;
};

/// Entries are keys with leases, which a thread keeps alive (API v3). The code is in the module
/// "etcd" (framework/base/module.h), which this call loads; etcd itself is contacted only when a
/// member is called.
/// Errors: those of load_module() and of reading the PEM files; kInvalidArgument without endpoints,
/// for an invalid endpoint, or for a lease of less than 1 s.
/// Thread-safety: all members.
StatusOr<std::unique_ptr<Directory>> make_etcd_directory(const EtcdOptions& options);

}  // namespace millrace::ps
