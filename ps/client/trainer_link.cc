#include "ps/client/trainer_link.h"

#include <utility>

#include "ps/client/by_server.h"
#include "ps/protocol/pack.h"

namespace millrace::ps {
namespace {

Request pack_send(std::vector<RequestItem> vars) {
  return pack(protocol::Send{SendKind::kGradients, std::move(vars)});
}

Request pack_send_barrier(std::vector<RequestItem> vars) {
  return pack(protocol::SendBarrier{std::move(vars)});
}

Request pack_get(std::vector<std::string> names) {
  return pack(protocol::Get{GetKind::kValues, std::move(names)});
}

Request pack_get_now(std::vector<std::string> names) {
  return pack(protocol::GetNow{std::move(names)});
}

Request pack_fetch_barrier(std::vector<std::string> names) {
  return pack(protocol::FetchBarrier{std::move(names)});
}

}  // namespace

Status TrainerLink::deliver(llvm::ArrayRef<Parcel> parcels, PackSend pack_call,
                            const std::vector<std::string>& endpoints) {
  ByServer<SentVars> sent;
  for (const std::string& endpoint : endpoints) sent.index_of(endpoint);
  for (const Parcel& parcel : parcels)
    sent.at(parcel.endpoint).vars.push_back({parcel.name, parcel.value, nullptr});
  std::vector<Client::Call> calls;
  for (SentVars& entry : sent.entries()) {
    Client::Call& call = calls.emplace_back();
    call.endpoint = std::move(entry.endpoint);
    call.request = pack_call(std::move(entry.vars));
  }
  return client_->call_all(calls);
}

Status TrainerLink::collect(llvm::ArrayRef<Want> wants, PackFetch pack_call,
                            const std::vector<std::string>& endpoints) {
  ByServer<WantedVars> wanted;
  for (const std::string& endpoint : endpoints) wanted.index_of(endpoint);
  std::vector<std::pair<size_t, size_t>> places;  // call, position
  for (const Want& want : wants) {
    const size_t index = wanted.index_of(want.endpoint);
    WantedVars& entry = wanted.entries()[index];
    places.emplace_back(index, entry.names.size());
    entry.names.push_back(want.name);
    entry.memory.push_back(std::move(*want.target));
  }
  std::vector<Client::Call> calls;
  for (WantedVars& entry : wanted.entries()) {
    Client::Call& call = calls.emplace_back();
    call.endpoint = std::move(entry.endpoint);
    call.request = pack_call(std::move(entry.names));
    call.reply.values = std::move(entry.memory);
  }
  Status status = client_->call_all(calls);
  for (size_t i = 0; i < wants.size(); ++i) {
    const auto [index, position] = places[i];
    Client::Call& call = calls[index];
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
  MILLRACE_ASSIGN_OR_RETURN(const ServerMode mode, client_->mode_of(endpoint));
  return mode == ServerMode::kSync;
}

Status TrainerLink::send(llvm::ArrayRef<Parcel> parcels) {
  if (parcels.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const bool without, lacks_barriers(parcels.front().endpoint));
  if (without && turn_ == Turn::kFetching)
    MILLRACE_RETURN_IF_ERROR(collect({}, pack_fetch_barrier, client_->endpoints()));
  if (without) turn_ = Turn::kSending;
  return deliver(parcels, pack_send, {});
}

void TrainerLink::keep(llvm::ArrayRef<Parcel> parcels) {
  parcels_.insert(parcels_.end(), parcels.begin(), parcels.end());
}

Status TrainerLink::send_barrier(const std::vector<std::string>& endpoints) {
  const std::vector<Parcel> parcels = std::exchange(parcels_, {});
  return deliver(parcels, pack_send_barrier, endpoints);
}

Status TrainerLink::fetch(llvm::ArrayRef<Want> wants, bool any_phase) {
  if (wants.empty()) return Ok();
  if (any_phase) return collect(wants, pack_get_now, {});
  MILLRACE_ASSIGN_OR_RETURN(const bool without, lacks_barriers(wants.front().endpoint));
  if (without && turn_ == Turn::kSending)
    MILLRACE_RETURN_IF_ERROR(deliver({}, pack_send_barrier, client_->endpoints()));
  if (without) turn_ = Turn::kFetching;
  return collect(wants, pack_get, {});
}

void TrainerLink::keep(llvm::ArrayRef<Want> wants) {
  wants_.insert(wants_.end(), wants.begin(), wants.end());
}

Status TrainerLink::fetch_barrier(const std::vector<std::string>& endpoints) {
  const std::vector<Want> wants = std::exchange(wants_, {});
  turn_ = Turn::kNone;
  return collect(wants, pack_fetch_barrier, endpoints);
}

Status TrainerLink::finish_step() {
  if (turn_ != Turn::kSending) return Ok();
  MILLRACE_RETURN_IF_ERROR(deliver({}, pack_send_barrier, client_->endpoints()));
  turn_ = Turn::kNone;
  return collect({}, pack_fetch_barrier, client_->endpoints());
}

void TrainerLink::forget() {
  parcels_.clear();
  wants_.clear();
  turn_ = Turn::kNone;
}

}  // namespace millrace::ps
