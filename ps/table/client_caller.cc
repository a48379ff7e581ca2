#include "ps/table/client_caller.h"

#include <utility>

namespace millrace::ps {

Status ClientCaller::call_all(std::span<TableRequest> requests) {
  std::vector<Client::Call> calls(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    TableRequest& request = requests[i];
    calls[i].endpoint = endpoints_[request.server];
    calls[i].method = request.method;
    calls[i].number = request.number;
    calls[i].text = std::move(request.text);
    calls[i].items = std::move(request.items);
    // A moved value could not be sent again by a repeat.
    for (RequestItem& item : calls[i].items) item.movable = nullptr;
  }
  Status status = client_->call_all(calls);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].reply = std::move(calls[i].reply);
  return status;
}

}  // namespace millrace::ps
