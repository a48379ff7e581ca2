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

/// For the sources of the module "etcd" only.
namespace millrace::ps {

/// Calls to an etcd cluster: to the member that answered last, and if it does not answer any more,
/// to the next. Thread-safety: all members.
class EtcdCalls {
 public:
  /// Errors: those of make_etcd_directory().
  static StatusOr<std::unique_ptr<EtcdCalls>> open(const EtcdOptions& options);

  /// \param method  such as "KV/Range"
  /// Errors: kDistributed, with every member and what it said, if none answers by the deadline.
  Status ask(const std::string& method, const google::protobuf::MessageLite& request,
             google::protobuf::MessageLite& answer, Deadline deadline);
  /// The same for a method whose requests and answers are streams: one of each.
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
