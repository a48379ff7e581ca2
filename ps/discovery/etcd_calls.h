#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/discovery/etcd.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf
namespace grpc {
class Channel;
}  // namespace grpc

/// Only for the sources of the module "etcd".
namespace millrace::ps {

/// Calls to an etcd cluster: to the member that responded last, and if that does not respond, to
/// the next. Thread-safety: all members.
class EtcdCalls {
 public:
  /// Errors: those of make_etcd_directory().
  static StatusOr<std::unique_ptr<EtcdCalls>> open(const EtcdOptions& options);

  /// \param method  such as "KV/Range"
  /// Errors: kDistributed, with the error of every member, if none responds by the deadline.
  Status ask(const std::string& method, const google::protobuf::MessageLite& request,
             google::protobuf::MessageLite& answer, Deadline deadline);
  /// The same for a method with streamed requests and responses; exchanges one of each.
  Status ask_stream(const std::string& method, const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite& answer, Deadline deadline);

 private:
  struct Member {
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
  };
  EtcdCalls() = default;
  template <typename Call>
  Status ask_members(const std::string& method, Deadline deadline, const Call& call);

  std::vector<Member> members_;
  std::atomic<size_t> last_good_ = 0;
};

}  // namespace millrace::ps
