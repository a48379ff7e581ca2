#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/boot_clock.h"
#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "proto/etcd.pb.h"
#include "ps/discovery/etcd.h"
#include "ps/discovery/etcd_calls.h"
#include "ps/discovery/etcd_member.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kEtcdDirectoryPause{200};
constexpr std::chrono::milliseconds kFarewell{1000};
constexpr const char* kFinished = " finished";  // after the term of a process

// The transaction sets a key, and fails if that has changed since a revision.
void replace_if_unchanged(etcd::TxnRequest& request, const std::string& key, int64_t revision,
                          const std::string& value) {
  etcd::Compare& compare = *request.add_compare();
  compare.set_target(2);
  compare.set_key(key);
  compare.set_mod_revision(revision);
  etcd::PutRequest& put = *request.add_success()->mutable_put();
  put.set_key(key);
  put.set_value(value);
}

class EtcdDirectory final : public Directory {
 public:
  EtcdDirectory(const EtcdOptions& options, EtcdMembers members)
      : options_(options),
        prefix_(fmt::format("/millrace/{}/", options.job)),
        terms_(fmt::format("/millrace-terms/{}/", options.job)),
        calls_(std::move(members)) {}
  ~EtcdDirectory() override;

  StatusOr<uint64_t> announce(const std::string& name, const std::string& address, uint64_t least,
                              Deadline deadline) override;
  StatusOr<bool> still_has(const std::string& name, Deadline deadline) override;
  void watch(const std::string& name, std::function<void()> lost) override;
  void finish(const std::string& name) override;
  StatusOr<std::optional<std::string>> find(const std::string& name, Deadline deadline) override;
  StatusOr<std::vector<Entry>> list(Deadline deadline) override;

 private:
  // An entry that this process announced.
  struct Mine {
    std::string address;
    uint64_t term = 0;  // 0: none yet
    int64_t lease = 0;  // under which it is registered
    bool lost = false;  // another process has had the name since
  };
  // The term of the last process that had a name, and the revision that set it.
  struct LastTerm {
    uint64_t term = 0;
    bool finished = false;  // that process has finished its job
    int64_t revision = 0;   // 0: there is none
  };
  // What an attempt to register a name found.
  struct Entered {
    std::string other;       // address of another process that has the name; empty: none
    int64_t lease = 0;       // of that process
    uint64_t last_term = 0;  // term of the last process that had it
    uint64_t term = 0;       // of this process; 0: the name was not registered
    bool finished = false;   // the job, since this process began to wait
  };

  StatusOr<int64_t> lease(Deadline deadline);
  StatusOr<LastTerm> last_term(const std::string& name, Deadline deadline);
  StatusOr<Entered> enter(const std::string& name, const Mine& mine, uint64_t least, int64_t lease,
                          std::optional<LastTerm>& first, Deadline deadline);
  Status record_finish(const std::string& name, uint64_t term, Deadline deadline);
  void keep_alive();
  // Whether this process has a name; none if etcd has to be asked. The caller must hold mutex_.
  [[nodiscard]] std::optional<bool> knows(const std::string& name) const;
  Status renew(Deadline deadline);
  Status keep_lease(int64_t lease, Deadline deadline);
  Status enter_again(const std::string& name, const Mine& mine, Deadline deadline);
  void notify_watcher(const std::string& name);
  void log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  const EtcdOptions options_;
  const std::string prefix_;
  const std::string terms_;  // prefix of the keys with terms, which have no lease
  EtcdCalls calls_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  int64_t lease_ = 0;              // 0: none
  BootClock::time_point renewed_;  // when its last renewal was requested
  std::map<std::string, Mine> mine_;
  std::mutex calling_;  // held during calls of watchers, never with mutex_
  std::map<std::string, std::function<void()>> watchers_;  // by name
  std::condition_variable renewal_ended_;
  bool is_wanted_ = false;  // a thread waits for a renewal
  Status last_error_;       // of the last renewal
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
          calls_.ask("Lease/LeaseRevoke", request, answer, Clock::now() + kFarewell);
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
  const BootClock::time_point begin = BootClock::now();
  MILLRACE_RETURN_IF_ERROR(calls_.ask("Lease/LeaseGrant", request, answer, deadline));
  if (answer.id() == 0)
    return Status(StatusCode::kDistributed,
                  fmt::format("etcd granted no lease: {}", answer.error()));
  const std::lock_guard<std::mutex> lock(mutex_);
  lease_ = answer.id();
  renewed_ = begin;
  if (!keeper_.joinable()) keeper_ = std::thread([this] { keep_alive(); });
  return lease_;
}

StatusOr<EtcdDirectory::LastTerm> EtcdDirectory::last_term(const std::string& name,
                                                           Deadline deadline) {
  etcd::RangeRequest request;
  etcd::RangeResponse answer;
  request.set_key(terms_ + name);
  MILLRACE_RETURN_IF_ERROR(calls_.ask("KV/Range", request, answer, deadline));
  LastTerm last;
  if (answer.kvs_size() == 0) return last;
  const etcd::KeyValue& found = answer.kvs(0);
  last.revision = found.mod_revision();
  llvm::StringRef text = found.value();
  last.finished = text.consume_back(kFinished);
  if (text.getAsInteger(10, last.term) || last.term >= UINT32_MAX)
    return InvalidData("etcd: expected a term under '{}{}', found '{}'", terms_, name,
                       found.value());
  return last;
}

// Registers the name and the term of this process in one transaction, which fails if another
// process has the name, or has had it since the last term was read. \param first  the last term
// when this process began to wait; set by the first attempt
StatusOr<EtcdDirectory::Entered> EtcdDirectory::enter(const std::string& name, const Mine& mine,
                                                      uint64_t least, int64_t lease,
                                                      std::optional<LastTerm>& first,
                                                      Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const LastTerm last, last_term(name, deadline));
  if (!first) first = last;
  Entered entered;
  entered.last_term = last.term;
  entered.finished = last.finished && (last.term != first->term || !first->finished);
  if (entered.finished) return entered;
  if (mine.term != 0 && last.term > mine.term) return entered;
  const uint64_t term = mine.term != 0 ? mine.term : std::max(last.term + 1, least);
  etcd::TxnRequest request;
  etcd::TxnResponse answer;
  etcd::Compare& is_free = *request.add_compare();
  is_free.set_target(1);
  is_free.set_key(prefix_ + name);
  is_free.set_create_revision(0);
  replace_if_unchanged(request, terms_ + name, last.revision, std::to_string(term));
  etcd::PutRequest& put = *request.add_success()->mutable_put();
  put.set_key(prefix_ + name);
  put.set_value(mine.address);
  put.set_lease(lease);
  request.add_failure()->mutable_range()->set_key(prefix_ + name);
  MILLRACE_RETURN_IF_ERROR(calls_.ask("KV/Txn", request, answer, deadline));
  if (answer.succeeded()) {
    entered.term = term;
    return entered;
  }
  if (answer.responses_size() != 1)
    return Status(StatusCode::kDistributed,
                  "etcd neither registered a name nor returned its current address");
  if (answer.responses(0).range().kvs_size() == 0) return entered;  // it was free for a moment
  const etcd::KeyValue& other = answer.responses(0).range().kvs(0);
  if (other.lease() != lease) {
    entered.other = other.value();
    entered.lease = other.lease();
    return entered;
  }
  // this process has the name already, from a request whose response was lost
  MILLRACE_ASSIGN_OR_RETURN(const LastTerm own, last_term(name, deadline));
  entered.term = own.term;
  return entered;
}

StatusOr<uint64_t> EtcdDirectory::announce(const std::string& name, const std::string& address,
                                           uint64_t least, Deadline deadline) {
  Mine mine{.address = address};
  std::optional<LastTerm> first;
  for (;;) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t held, lease(deadline));
    const StatusOr<Entered> entered = enter(name, mine, least, held, first, deadline);
    const bool is_late = Clock::now() + kEtcdDirectoryPause >= deadline;
    if (!entered.ok()) {
      if (is_late) return entered.status();
      // the lease may have ended meanwhile; then the next attempt has a new one
      MILLRACE_RETURN_IF_ERROR(keep_lease(held, deadline));
    } else if (entered->finished) {
      return Status(StatusCode::kDistributed,
                    fmt::format("another process served as '{}' and finished the job, according to "
                                "etcd, while this one waited to take its place",
                                name));
    } else if (entered->term != 0) {
      mine.term = entered->term;
      mine.lease = held;
      break;
    } else if (is_late) {
      return Status(StatusCode::kDistributed,
                    fmt::format("'{}' is already served at {}, according to etcd", name,
                                entered->other.empty() ? "another address" : entered->other));
    }
    std::this_thread::sleep_for(kEtcdDirectoryPause);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  mine_[name] = mine;
  return mine.term;
}

// An entry exists at least until its lease has ended, by a clock that counts suspensions; later,
// another process may have the name.
std::optional<bool> EtcdDirectory::knows(const std::string& name) const {
  const auto mine = mine_.find(name);
  if (mine == mine_.end() || mine->second.lost) return false;
  const bool is_entered = lease_ != 0 && mine->second.lease == lease_;
  if (is_entered && BootClock::now() < renewed_ + options_.lease) return true;
  return std::nullopt;
}

StatusOr<bool> EtcdDirectory::still_has(const std::string& name, Deadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::optional<bool> has;
  renewal_ended_.wait_until(lock, deadline, [&] {
    has = knows(name);
    if (has || stop_) return true;
    is_wanted_ = true;
    wake_.notify_all();
    return false;
  });
  if (has) return *has;
  return Status(StatusCode::kDistributed,
                fmt::format("this server has not heard from etcd for its lease of {} s, and cannot "
                            "tell whether it still has the name '{}'",
                            options_.lease.count(), name))
      .with_note(last_error_.ok() ? "etcd was asked and has not responded yet"
                                  : last_error_.message());
}

void EtcdDirectory::watch(const std::string& name, std::function<void()> lost) {
  {
    const std::lock_guard<std::mutex> calling(calling_);
    watchers_[name] = std::move(lost);
  }
  bool is_lost = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto mine = mine_.find(name);
    is_lost = mine != mine_.end() && mine->second.lost;
  }
  if (is_lost) notify_watcher(name);
}

void EtcdDirectory::finish(const std::string& name) {
  uint64_t term = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto mine = mine_.find(name);
    if (mine == mine_.end() || mine->second.lost) return;
    term = mine->second.term;
  }
  if (const Status status = record_finish(name, term, Clock::now() + kFarewell); !status.ok())
    log(fmt::format("cannot record in etcd that '{}' has finished the job: {}", name,
                    status.message()));
}

Status EtcdDirectory::record_finish(const std::string& name, uint64_t term, Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const LastTerm last, last_term(name, deadline));
  if (last.term != term) return Ok();  // another process has the name
  etcd::TxnRequest request;
  etcd::TxnResponse answer;
  replace_if_unchanged(request, terms_ + name, last.revision, std::to_string(term) + kFinished);
  return calls_.ask("KV/Txn", request, answer, deadline);
}

void EtcdDirectory::notify_watcher(const std::string& name) {
  const std::lock_guard<std::mutex> calling(calling_);
  const std::function<void()> lost = std::exchange(watchers_[name], {});
  if (lost) lost();
}

StatusOr<std::optional<std::string>> EtcdDirectory::find(const std::string& name,
                                                         Deadline deadline) {
  etcd::RangeRequest request;
  etcd::RangeResponse answer;
  request.set_key(prefix_ + name);
  MILLRACE_RETURN_IF_ERROR(calls_.ask("KV/Range", request, answer, deadline));
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
  MILLRACE_RETURN_IF_ERROR(calls_.ask("KV/Range", request, answer, deadline));
  std::vector<Entry> entries;
  for (const etcd::KeyValue& found : answer.kvs())
    entries.push_back({found.key().substr(prefix_.size()), found.value()});
  return entries;
}

// Renews the lease. If it has expired, requests a new one. Registers all entries again that are not
// registered under the lease. Errors: only those of etcd; a name that was lost is marked.
Status EtcdDirectory::renew(Deadline deadline) {
  int64_t held = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    held = lease_;
  }
  if (held != 0) MILLRACE_RETURN_IF_ERROR(keep_lease(held, deadline));
  std::map<std::string, Mine> entries;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries = mine_;
    held = lease_;
  }
  for (const auto& [name, mine] : entries) {
    if (!mine.lost && (held == 0 || mine.lease != held))
      MILLRACE_RETURN_IF_ERROR(enter_again(name, mine, deadline));
  }
  return Ok();
}

Status EtcdDirectory::keep_lease(int64_t lease, Deadline deadline) {
  etcd::LeaseKeepAliveRequest request;
  etcd::LeaseKeepAliveResponse answer;
  request.set_id(lease);
  const BootClock::time_point begin = BootClock::now();
  MILLRACE_RETURN_IF_ERROR(calls_.ask_stream("Lease/LeaseKeepAlive", request, answer, deadline));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lease_ != lease) return Ok();  // another thread has noticed its end
  if (answer.ttl() > 0) {
    renewed_ = std::max(renewed_, begin);
  } else {
    lease_ = 0;
  }
  return Ok();
}

Status EtcdDirectory::enter_again(const std::string& name, const Mine& mine, Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t held, lease(deadline));
  std::optional<LastTerm> first = LastTerm{.term = mine.term};
  MILLRACE_ASSIGN_OR_RETURN(const Entered entered,
                            enter(name, mine, mine.term, held, first, deadline));
  if (entered.term == mine.term) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      mine_[name].lease = held;
    }
    log(fmt::format("'{}' is registered in etcd again", name));
    return Ok();
  }
  if (entered.lease != 0 && entered.lease == mine.lease)
    return Status(
        StatusCode::kDistributed,
        fmt::format("etcd has not deleted the entry of '{}' yet, whose lease has ended", name));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    mine_[name].lost = true;
  }
  log(fmt::format("'{}' now belongs to another process, according to etcd: {} with term {}", name,
                  entered.other.empty() ? "it had the name" : "it is at " + entered.other,
                  entered.last_term));
  notify_watcher(name);
  return Ok();
}

void EtcdDirectory::keep_alive() {
  const Clock::duration lease = options_.lease;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    const bool was_good = last_error_.ok();
    // after a failure, a thread that waits does not make this one ask again at once
    wake_.wait_for(lock, was_good ? lease / 3 : kEtcdDirectoryPause,
                   [&] { return stop_ || (is_wanted_ && was_good); });
    if (stop_) break;
    is_wanted_ = false;
    lock.unlock();
    Status status = without_exceptions("while a lease is renewed",
                                       [&] { return renew(Clock::now() + lease / 2); });
    if (!status.ok() && was_good)
      log(fmt::format("cannot renew entries in etcd: {}", status.to_string()));
    lock.lock();
    last_error_ = std::move(status);
    renewal_ended_.notify_all();
  }
  renewal_ended_.notify_all();
}

}  // namespace

StatusOr<std::unique_ptr<Directory>> make_etcd_directory(const EtcdOptions& options,
                                                         EtcdMembers members) {
  if (options.lease.count() < 1) return InvalidArgument("etcd: expected a lease of at least 1 s");
  if (members.empty()) return InvalidArgument("etcd: expected at least one member, found none");
  return std::unique_ptr<Directory>(std::make_unique<EtcdDirectory>(options, std::move(members)));
}

}  // namespace millrace::ps
