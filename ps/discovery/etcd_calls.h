#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "framework/base/status.h"
#include "ps/discovery/etcd_member.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace millrace::ps {

/// Calls to an etcd cluster: to the member that responded last, and if that does not respond, to
/// the next. A call whose response was lost is repeated, so etcd may carry it out twice.
/// Thread-safety: all members.
class EtcdCalls {
 public:
  /// \param members  at least one
  explicit EtcdCalls(EtcdMembers members) : members_(std::move(members)) {}

  /// \param method  such as "KV/Range"
  /// Errors: kDistributed, with the error of every member, if none responds by the deadline.
  Status ask(const std::string& method, const google::protobuf::MessageLite& request,
             google::protobuf::MessageLite& answer, Deadline deadline);
  /// The same for a method with streamed requests and responses; exchanges one of each.
  Status ask_stream(const std::string& method, const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite& answer, Deadline deadline);

 private:
  Status ask_members(const EtcdRequest& request, google::protobuf::MessageLite& answer,
                     Deadline deadline);

  const EtcdMembers members_;
  std::atomic<size_t> last_good_ = 0;
};

}  // namespace millrace::ps
