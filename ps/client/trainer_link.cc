#include "ps/client/trainer_link.h"

#include <algorithm>
#include <utility>

#include "ps/wire_names.h"

namespace millrace::ps {
namespace {

// One call per server, including the listed servers that nothing is sent to.
class Calls {
 public:
  Calls(Method method, const std::vector<std::string>& endpoints) : method_(method) {
    for (const std::string& endpoint : endpoints) index_of(endpoint);
  }
  size_t index_of(const std::string& endpoint) {
    const auto found = std::find_if(calls.begin(), calls.end(), [&](const Client::Call& call) {
      return call.endpoint == endpoint;
    });
    if (found != calls.end()) return static_cast<size_t>(found - calls.begin());
    Client::Call& call = calls.emplace_back();
    call.endpoint = endpoint;
    call.method = method_;
    return calls.size() - 1;
  }

  std::vector<Client::Call> calls;

 private:
  Method method_;
};

}  // namespace

Status TrainerLink::deliver(llvm::ArrayRef<Parcel> parcels, Method method,
                            const std::vector<std::string>& endpoints) {
  Calls calls(method, endpoints);
  for (const Parcel& parcel : parcels) {
    Client::Call& call = calls.calls[calls.index_of(parcel.endpoint)];
    call.items.push_back({parcel.name, parcel.value, nullptr});
  }
  return client_->call_all(calls.calls);
}

Status TrainerLink::collect(llvm::ArrayRef<Want> wants, Method method,
                            const std::vector<std::string>& endpoints) {
  Calls calls(method, endpoints);
  std::vector<std::pair<size_t, size_t>> places;  // call, position
  for (const Want& want : wants) {
    const size_t index = calls.index_of(want.endpoint);
    Client::Call& call = calls.calls[index];
    places.emplace_back(index, call.items.size());
    const bool any_phase = method == Method::kGetNoBarrier;
    call.items.push_back({any_phase ? want.name + kWithoutBarrier : want.name, nullptr, nullptr});
    call.reply.values.push_back(std::move(*want.target));
  }
  Status status = client_->call_all(calls.calls);
  for (size_t i = 0; i < wants.size(); ++i) {
    const auto [index, position] = places[i];
    Client::Call& call = calls.calls[index];
    if (position < call.reply.values.size()) {
      *wants[i].target = std::move(call.reply.values[position]);
    } else if (status.ok()) {
      status = Status(StatusCode::kDistributed,
                      "the server's response lacks '" + wants[i].name + "', which was requested");
    }
  }
  return status;
}

StatusOr<bool> TrainerLink::lacks_barriers(const std::string& endpoint) {
  MILLRACE_ASSIGN_OR_RETURN(const int mode, client_->mode_of(endpoint));
  return mode == 0;
}

Status TrainerLink::send(llvm::ArrayRef<Parcel> parcels) {
  if (parcels.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const bool without, lacks_barriers(parcels.front().endpoint));
  if (without && turn_ == Turn::kFetching)
    MILLRACE_RETURN_IF_ERROR(collect({}, Method::kFetchBarrier, client_->endpoints()));
  if (without) turn_ = Turn::kSending;
  return deliver(parcels, Method::kSend, {});
}

void TrainerLink::keep(llvm::ArrayRef<Parcel> parcels) {
  parcels_.insert(parcels_.end(), parcels.begin(), parcels.end());
}

Status TrainerLink::send_barrier(const std::vector<std::string>& endpoints) {
  const std::vector<Parcel> parcels = std::exchange(parcels_, {});
  return deliver(parcels, Method::kSendBarrier, endpoints);
}

Status TrainerLink::fetch(llvm::ArrayRef<Want> wants, bool any_phase) {
  if (wants.empty()) return Ok();
  if (any_phase) return collect(wants, Method::kGetNoBarrier, {});
  MILLRACE_ASSIGN_OR_RETURN(const bool without, lacks_barriers(wants.front().endpoint));
  if (without && turn_ == Turn::kSending)
    MILLRACE_RETURN_IF_ERROR(deliver({}, Method::kSendBarrier, client_->endpoints()));
  if (without) turn_ = Turn::kFetching;
  return collect(wants, Method::kGet, {});
}

void TrainerLink::keep(llvm::ArrayRef<Want> wants) {
  wants_.insert(wants_.end(), wants.begin(), wants.end());
}

Status TrainerLink::fetch_barrier(const std::vector<std::string>& endpoints) {
  const std::vector<Want> wants = std::exchange(wants_, {});
  turn_ = Turn::kNone;
  return collect(wants, Method::kFetchBarrier, endpoints);
}

void TrainerLink::forget() {
  parcels_.clear();
  wants_.clear();
  turn_ = Turn::kNone;
}

}  // namespace millrace::ps
