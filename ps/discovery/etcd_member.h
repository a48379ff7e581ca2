#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/discovery/directory.h"
#include "ps/discovery/etcd.h"
#include "ps/transport/transport.h"

/// How calls reach etcd; only for discovery and its tests.
namespace millrace::ps {

/// A call of etcd's API (v3).
struct EtcdRequest {
  std::string method;    ///< such as "KV/Range"
  bool streams = false;  ///< the method has streamed requests and responses; one of each is needed
  std::string message;   ///< as serialized by protobuf (proto/etcd.proto)
};

/// One member of an etcd cluster. Thread-safety: all members.
class EtcdMember {
 public:
  EtcdMember() = default;
  EtcdMember(const EtcdMember&) = delete;
  EtcdMember& operator=(const EtcdMember&) = delete;
  virtual ~EtcdMember() = default;

  [[nodiscard]] virtual const std::string& endpoint() const = 0;
  /// Makes a call once. \param response  receives the message of the response
  /// Errors: kDistributed if no response arrives by the deadline, or the connection is lost: the
  /// member may have carried the call out, or may do so later. Another code if it refuses the call.
  virtual Status call(const EtcdRequest& request, Deadline deadline, std::string& response) = 0;
};

using EtcdMembers = std::vector<std::unique_ptr<EtcdMember>>;

/// Entry point of the module "etcd": members that are called by gRPC.
/// Errors: those of reading the PEM files; kInvalidArgument for an invalid endpoint.
struct EtcdModule {
  StatusOr<EtcdMembers> (*open)(const EtcdOptions& options);
};

/// make_etcd_directory() for given members; the endpoints and files of the options have no meaning.
/// Errors: kInvalidArgument without members, or for a lease of less than 1 s.
StatusOr<std::unique_ptr<Directory>> make_etcd_directory(const EtcdOptions& options,
                                                         EtcdMembers members);

}  // namespace millrace::ps
