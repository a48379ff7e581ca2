#include "tests/simulation/etcd_store.h"

#include <algorithm>
#include <vector>

#include "framework/base/errors.h"
#include "proto/etcd.pb.h"

namespace millrace::simulation {
namespace {

// etcd looks for leases that have ended at intervals.
constexpr Time kSlowestRemoval = kSecond;

template <typename Message>
StatusOr<Message> parse(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) return InvalidData("the request cannot be parsed");
  return message;
}

}  // namespace

Time EtcdStore::taken_from(ProcessId process) const {
  const auto found = taken_.find(process);
  return found == taken_.end() ? kNever : found->second;
}

void EtcdStore::renew(Lease& lease, Time now) {
  lease.ends_at = now + lease.length;
  lease.removed_at = lease.ends_at + random_.between(0, kSlowestRemoval);
}

void EtcdStore::was_down(Time now) {
  for (auto& [id, lease] : leases_) renew(lease, now);
}

void EtcdStore::remove(int64_t lease) {
  leases_.erase(lease);
  if (std::erase_if(entries_, [&](const auto& entry) { return entry.second.lease == lease; }) > 0)
    ++revision_;
}

void EtcdStore::remove_ended(Time now) {
  std::vector<int64_t> ended;
  for (const auto& [id, lease] : leases_)
    if (lease.removed_at <= now) ended.push_back(id);
  for (const int64_t id : ended) remove(id);
}

StatusOr<std::string> EtcdStore::carry_out(const std::string& method, const std::string& message,
                                           ProcessId caller, Time now) {
  remove_ended(now);
  if (method == "KV/Range") return range(message);
  if (method == "KV/Txn") return transact(message, caller, now);
  if (method == "Lease/LeaseGrant") return grant(message, now);
  if (method == "Lease/LeaseRevoke") return revoke(message);
  if (method == "Lease/LeaseKeepAlive") return keep_alive(message, now);
  return Unimplemented("etcd's method '{}' is not simulated", method);
}

StatusOr<std::string> EtcdStore::range(const std::string& message) const {
  MILLRACE_ASSIGN_OR_RETURN(const auto request, parse<etcd::RangeRequest>(message));
  etcd::RangeResponse response;
  for (const auto& [key, entry] : entries_) {
    const bool wanted = request.range_end().empty()
                            ? key == request.key()
                            : key >= request.key() && key < request.range_end();
    if (!wanted) continue;
    etcd::KeyValue& found = *response.add_kvs();
    found.set_key(key);
    found.set_value(entry.value);
    found.set_mod_revision(entry.changed);
    found.set_lease(entry.lease);
  }
  return response.SerializeAsString();
}

bool EtcdStore::holds(const etcd::Compare& compare) const {
  const auto found = entries_.find(compare.key());
  const Entry entry = found == entries_.end() ? Entry() : found->second;
  if (compare.target() == 1) return entry.created == compare.create_revision();
  return entry.changed == compare.mod_revision();
}

bool EtcdStore::may_put(const etcd::RequestOp& op, Time now) const {
  if (!op.has_put() || op.put().lease() == 0) return true;
  const auto found = leases_.find(op.put().lease());
  return found != leases_.end() && found->second.ends_at > now;
}

void EtcdStore::put(const etcd::RequestOp& op, int64_t revision, ProcessId caller, Time now) {
  const etcd::PutRequest& request = op.put();
  Entry& entry = entries_[request.key()];
  if (entry.created == 0) entry.created = revision;
  entry.changed = revision;
  entry.value = request.value();
  entry.lease = request.lease();
  if (entry.lease == 0) return;
  const auto [owner, is_new] = owners_.try_emplace(request.key(), caller);
  if (owner->second == caller) return;
  taken_.try_emplace(owner->second, now);
  owner->second = caller;
}

StatusOr<std::string> EtcdStore::transact(const std::string& message, ProcessId caller, Time now) {
  MILLRACE_ASSIGN_OR_RETURN(const auto request, parse<etcd::TxnRequest>(message));
  etcd::TxnResponse response;
  response.set_succeeded(
      std::ranges::all_of(request.compare(), [&](const auto& each) { return holds(each); }));
  const auto& ops = response.succeeded() ? request.success() : request.failure();
  // nothing is changed if one of the puts is refused
  if (!std::ranges::all_of(ops, [&](const auto& op) { return may_put(op, now); }))
    return Status(StatusCode::kExecution, "etcdserver: requested lease not found");
  const int64_t revision = revision_ + 1;
  for (const etcd::RequestOp& op : ops) {
    etcd::ResponseOp& result = *response.add_responses();
    if (op.has_put()) {
      put(op, revision, caller, now);
      revision_ = revision;
      continue;
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::string found, range(op.range().SerializeAsString()));
    result.mutable_range()->ParseFromString(found);
  }
  return response.SerializeAsString();
}

StatusOr<std::string> EtcdStore::grant(const std::string& message, Time now) {
  MILLRACE_ASSIGN_OR_RETURN(const auto request, parse<etcd::LeaseGrantRequest>(message));
  const int64_t id = ++last_lease_;
  Lease& lease = leases_[id];
  lease.length = request.ttl() * kSecond;
  renew(lease, now);
  etcd::LeaseGrantResponse response;
  response.set_id(id);
  response.set_ttl(request.ttl());
  return response.SerializeAsString();
}

StatusOr<std::string> EtcdStore::revoke(const std::string& message) {
  MILLRACE_ASSIGN_OR_RETURN(const auto request, parse<etcd::LeaseRevokeRequest>(message));
  if (!leases_.contains(request.id()))
    return Status(StatusCode::kExecution, "etcdserver: requested lease not found");
  remove(request.id());
  return etcd::LeaseRevokeResponse().SerializeAsString();
}

StatusOr<std::string> EtcdStore::keep_alive(const std::string& message, Time now) {
  MILLRACE_ASSIGN_OR_RETURN(const auto request, parse<etcd::LeaseKeepAliveRequest>(message));
  etcd::LeaseKeepAliveResponse response;
  response.set_id(request.id());
  const auto found = leases_.find(request.id());
  if (found != leases_.end() && found->second.ends_at > now) {
    renew(found->second, now);
    response.set_ttl(found->second.length / kSecond);
  }
  return response.SerializeAsString();
}

}  // namespace millrace::simulation
