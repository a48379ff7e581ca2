#include "ps/table/client_caller.h"

#include <utility>

namespace millrace::ps {

Status ClientCaller::call_all(std::span<TableRequest> requests) {
  std::vector<Client::Call> calls(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    TableRequest& request = requests[i];
    calls[i].endpoint = endpoints_[request.server];
    calls[i].request = std::move(request.request);
    // A moved value could not be sent again by a repeat.
    for (RequestItem& item : calls[i].request.items) item.movable = nullptr;
  }
  Status status = client_->call_all(calls);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].reply = std::move(calls[i].reply);
  return status;
}

}  // namespace millrace::ps
