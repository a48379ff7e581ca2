#include "ps/transport/message.h"

namespace millrace::ps {

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kHello:
      return "hello";
    case Method::kSend:
      return "send";
    case Method::kGet:
      return "get";
    case Method::kGetNoBarrier:
      return "get-no-barrier";
    case Method::kPrefetch:
      return "prefetch";
    case Method::kSendBarrier:
      return "send-barrier";
    case Method::kFetchBarrier:
      return "fetch-barrier";
    case Method::kComplete:
      return "complete";
    case Method::kCheckpoint:
      return "checkpoint";
    case Method::kCount:
      return "count";
    case Method::kRun:
      return "run";
    case Method::kPull:
      return "pull";
    case Method::kPush:
      return "push";
    case Method::kTableBarrier:
      return "table-barrier";
    case Method::kWatch:
      return "watch";
    case Method::kStop:
      return "stop";
    case Method::kGoTo:
      return "go-to";
    case Method::kLoss:
      return "loss";
  }
  return "unknown";
}

}  // namespace millrace::ps
