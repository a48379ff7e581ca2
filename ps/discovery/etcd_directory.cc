#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "proto/etcd.pb.h"
#include "ps/discovery/etcd.h"
#include "ps/discovery/etcd_calls.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kEtcdDirectoryPause{200};
constexpr std::chrono::milliseconds kFarewell{1000};

class EtcdDirectory final : public Directory {
 public:
  EtcdDirectory(const EtcdOptions& options, std::unique_ptr<EtcdCalls> calls)
      : options_(options),
        prefix_(fmt::format("/millrace/{}/", options.job)),
        calls_(std::move(calls)) {}
  ~EtcdDirectory() override;

  Status announce(const std::string& name, const std::string& address, Deadline deadline) override;
  StatusOr<std::optional<std::string>> find(const std::string& name, Deadline deadline) override;
  StatusOr<std::vector<Entry>> list(Deadline deadline) override;

 private:
  StatusOr<int64_t> lease(Deadline deadline);
  StatusOr<std::string> enter(const std::string& name, const std::string& address, int64_t lease,
                              Deadline deadline);
  void keep_alive();
  Status renew();
  void log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  const EtcdOptions options_;
  const std::string prefix_;
  const std::unique_ptr<EtcdCalls> calls_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  int64_t lease_ = 0;                        // 0: none
  std::map<std::string, std::string> mine_;  // entries that this process announced
  std::thread keeper_;
};

EtcdDirectory::~EtcdDirectory() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  if (lease_ == 0) return;
  etcd::LeaseRevokeRequest request;
  etcd::LeaseRevokeResponse answer;
  request.set_id(lease_);
  if (const Status status =
          calls_->ask("Lease/LeaseRevoke", request, answer, Clock::now() + kFarewell);
      !status.ok())
    log(fmt::format("cannot revoke the lease in etcd, its entries remain until it expires: {}",
                    status.message()));
}

StatusOr<int64_t> EtcdDirectory::lease(Deadline deadline) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lease_ != 0) return lease_;
  }
  etcd::LeaseGrantRequest request;
  etcd::LeaseGrantResponse answer;
  request.set_ttl(options_.lease.count());
  MILLRACE_RETURN_IF_ERROR(calls_->ask("Lease/LeaseGrant", request, answer, deadline));
  if (answer.id() == 0)
    return Status(StatusCode::kDistributed,
                  fmt::format("etcd granted no lease: {}", answer.error()));
  const std::lock_guard<std::mutex> lock(mutex_);
  lease_ = answer.id();
  if (!keeper_.joinable()) keeper_ = std::thread([this] { keep_alive(); });
  return lease_;
}

// Registers the name. \returns the address of another process that has it; empty if this process
// has it now
StatusOr<std::string> EtcdDirectory::enter(const std::string& name, const std::string& address,
                                           int64_t lease, Deadline deadline) {
  etcd::TxnRequest request;
  etcd::TxnResponse answer;
  etcd::Compare& is_free = *request.add_compare();
  is_free.set_target(1);
  is_free.set_key(prefix_ + name);
  is_free.set_create_revision(0);
  etcd::PutRequest& put = *request.add_success()->mutable_put();
  put.set_key(prefix_ + name);
  put.set_value(address);
  put.set_lease(lease);
  request.add_failure()->mutable_range()->set_key(prefix_ + name);
  MILLRACE_RETURN_IF_ERROR(calls_->ask("KV/Txn", request, answer, deadline));
  if (answer.succeeded()) return std::string();
  if (answer.responses_size() != 1 || answer.responses(0).range().kvs_size() != 1)
    return Status(StatusCode::kDistributed,
                  "etcd neither registered a name nor returned its current address");
  const etcd::KeyValue& other = answer.responses(0).range().kvs(0);
  // this process may have the name already, from a request whose response was lost
  return other.lease() == lease ? std::string() : other.value();
}

Status EtcdDirectory::announce(const std::string& name, const std::string& address,
                               Deadline deadline) {
  for (;;) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t held, lease(deadline));
    MILLRACE_ASSIGN_OR_RETURN(const std::string other, enter(name, address, held, deadline));
    if (other.empty()) break;
    if (Clock::now() + kEtcdDirectoryPause >= deadline) {
      return {StatusCode::kDistributed,
              fmt::format("'{}' is already served at {}, according to etcd", name, other)};
    }
    std::this_thread::sleep_for(kEtcdDirectoryPause);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  mine_[name] = address;
  return Ok();
}

StatusOr<std::optional<std::string>> EtcdDirectory::find(const std::string& name,
                                                         Deadline deadline) {
  etcd::RangeRequest request;
  etcd::RangeResponse answer;
  request.set_key(prefix_ + name);
  MILLRACE_RETURN_IF_ERROR(calls_->ask("KV/Range", request, answer, deadline));
  if (answer.kvs_size() == 0) return std::optional<std::string>();
  return std::optional<std::string>(answer.kvs(0).value());
}

StatusOr<std::vector<Directory::Entry>> EtcdDirectory::list(Deadline deadline) {
  etcd::RangeRequest request;
  etcd::RangeResponse answer;
  request.set_key(prefix_);
  std::string end = prefix_;
  ++end.back();  // the prefix ends with '/', so this is one past its last key
  request.set_range_end(end);
  MILLRACE_RETURN_IF_ERROR(calls_->ask("KV/Range", request, answer, deadline));
  std::vector<Entry> entries;
  for (const etcd::KeyValue& found : answer.kvs())
    entries.push_back({found.key().substr(prefix_.size()), found.value()});
  return entries;
}

// Renews the lease. If it has expired, requests a new one and registers all entries again.
Status EtcdDirectory::renew() {
  const Deadline deadline = Clock::now() + options_.lease / 2;
  etcd::LeaseKeepAliveRequest request;
  etcd::LeaseKeepAliveResponse answer;
  std::map<std::string, std::string> entries;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    request.set_id(lease_);
    entries = mine_;
  }
  if (request.id() != 0) {
    MILLRACE_RETURN_IF_ERROR(calls_->ask_stream("Lease/LeaseKeepAlive", request, answer, deadline));
    if (answer.ttl() > 0) return Ok();
    const std::lock_guard<std::mutex> lock(mutex_);
    lease_ = 0;
  }
  for (const auto& [name, address] : entries) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t held, lease(deadline));
    MILLRACE_ASSIGN_OR_RETURN(const std::string other, enter(name, address, held, deadline));
    if (!other.empty()) {
      return {StatusCode::kDistributed,
              fmt::format("'{}' is now registered in etcd by {}", name, other)};
    }
    log(fmt::format("'{}' is registered in etcd again", name));
  }
  return Ok();
}

void EtcdDirectory::keep_alive() {
  bool was_good = true;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, options_.lease / 3, [this] { return stop_; });
    if (stop_) return;
    lock.unlock();
    const Status status = renew();
    if (!status.ok() && was_good)
      log(fmt::format("cannot renew entries in etcd: {}", status.to_string()));
    was_good = status.ok();
    lock.lock();
  }
}

StatusOr<std::unique_ptr<Directory>> make_directory(const EtcdOptions& options) {
  if (options.lease.count() < 1) return InvalidArgument("etcd: expected a lease of at least 1 s");
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<EtcdCalls> calls, EtcdCalls::open(options));
  return std::unique_ptr<Directory>(std::make_unique<EtcdDirectory>(options, std::move(calls)));
}

constexpr EtcdModule kModule{&make_directory};

}  // namespace
}  // namespace millrace::ps

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::ps::kModule;
  return millrace::build_stamp();
}
