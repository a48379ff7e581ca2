#include "tests/simulation/scheduler.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <pthread.h>

#include "tests/simulation/real_calls.h"

// The ends of the program's static memory, which all simulated processes share.
extern "C" char __executable_start;  // NOLINT: defined by the linker
extern "C" char end;                 // NOLINT: defined by the linker

namespace millrace::simulation {
namespace {

constexpr int64_t kStepLimit = 500'000;
constexpr int kChangePoints = 12;
constexpr uint64_t kChangePointsBefore = 20'000;

thread_local Scheduler* active_scheduler = nullptr;

bool is_static(const void* address) {
  const char* const place = static_cast<const char*>(address);
  return place >= &__executable_start && place < &end;
}

}  // namespace

Scheduler::Scheduler(uint64_t seed, Time time_limit, std::function<void(const std::string&)> stuck)
    : schedule_(seed * 3 + 1),
      numbers_(seed * 3 + 2),
      time_limit_(time_limit),
      stuck_(std::move(stuck)) {
  processes_.push_back({"driver"});
  by_priority_ = schedule_.chance(0.5);
  static constexpr double kChances[] = {0.01, 0.05, 0.2, 0.5};
  switch_chance_ = kChances[schedule_.below(4)];
  for (int i = 0; i < kChangePoints; ++i)
    change_points_.push_back(static_cast<int64_t>(schedule_.below(kChangePointsBefore)));
  std::sort(change_points_.rbegin(), change_points_.rend());
}

Scheduler::~Scheduler() = default;

Scheduler* Scheduler::active() {
  return active_scheduler;
}

void Scheduler::run(const std::function<void()>& driver) {
  auto thread = std::make_unique<Thread>();
  sem_init(&thread->baton, 0, 0);
  first_ = self_ = thread.get();
  first_->priority = INT64_MAX;
  threads_.push_back(std::move(thread));
  active_scheduler = this;
  driver();
  active_scheduler = nullptr;
}

Scheduler::ProcessId Scheduler::add_process(std::string name) {
  processes_.push_back({std::move(name)});
  return static_cast<ProcessId>(processes_.size()) - 1;
}

Scheduler::ProcessId Scheduler::current_process() const {
  return self_->process;
}

void Scheduler::pause(ProcessId process, bool paused, bool suspended) {
  Process& target = processes_[index(process)];
  if (paused == target.paused) return;
  target.paused = paused;
  woken_ = true;
  if (paused) target.paused_at = now_;
  if (paused) return;
  const Time length = now_ - target.paused_at;
  target.paused_for += length;
  if (!suspended) return;
  target.suspended += length;
  for (const auto& thread : threads_)
    if (thread->process == process && thread->wake_at != kNever) thread->wake_at += length;
}

Time Scheduler::paused_for(ProcessId process) const {
  const Process& target = processes_[index(process)];
  return target.paused_for + (target.paused ? now_ - target.paused_at : 0);
}

bool Scheduler::kill(ProcessId process) {
  for (const auto& [mutex, lock] : locks_) {
    const auto is_its = [&](const Thread* thread) {
      return thread != nullptr && thread->process == process;
    };
    const bool held = is_its(lock.owner) || std::ranges::any_of(lock.readers, [&](const auto& one) {
                        return is_its(one.first);
                      });
    if (held && is_static(mutex)) return false;
  }
  processes_[index(process)].alive = false;
  drop_file_locks(process);
  return true;
}

void Scheduler::drop_file_locks(ProcessId process) {
  for (const auto& [file, owner] : file_locks_) {
    struct flock none {};
    none.l_type = F_UNLCK;
    if (owner == process) (void)real().fcntl(file, F_OFD_SETLK, &none);
  }
}

// ---- threads

void* Scheduler::begin_thread(void* argument) {
  auto& self = *static_cast<Thread*>(argument);
  sem_wait(&self.baton);
  Scheduler& scheduler = *active_scheduler_of_new_threads();
  active_scheduler = &scheduler;
  self.body();
  self.body = nullptr;
  scheduler.wake_all(&self);
  self.state = State::kDone;
  void* const result = self.result;
  active_scheduler = nullptr;  // destructors of thread-local objects run without the baton
  scheduler.switch_from(self);
  return result;
}

Scheduler::Thread& Scheduler::start(ProcessId process, std::function<void()> body) {
  auto made = std::make_unique<Thread>();
  Thread& thread = *made;
  thread.number = ++count_;
  thread.process = process;
  thread.body = std::move(body);
  thread.priority = static_cast<int64_t>(schedule_.below(1U << 30U));
  sem_init(&thread.baton, 0, 0);
  active_scheduler_of_new_threads() = this;
  pthread_t id = {};
  if (real().pthread_create(&id, nullptr, &Scheduler::begin_thread, &thread) != 0)
    stuck_("the operating system has no more threads");
  thread.id = id;
  by_id_[thread.id] = &thread;
  threads_.push_back(std::move(made));
  woken_ = true;
  return thread;
}

void Scheduler::spawn(ProcessId process, std::function<void()> body) {
  detach_thread(start(process, std::move(body)).id);
}

int Scheduler::create_thread(uint64_t* id, void* (*body)(void*), void* argument) {
  Thread& thread = start(self_->process, {});
  thread.body = [&thread, body, argument] { thread.result = body(argument); };
  *id = thread.id;
  point();
  return 0;
}

int Scheduler::join_thread(uint64_t id, void** result) {
  Thread& thread = *by_id_.at(id);
  while (thread.state != State::kDone) block(&thread, kNever);
  by_id_.erase(id);
  return real().pthread_join(id, result);
}

void Scheduler::detach_thread(uint64_t id) {
  real().pthread_detach(id);
  by_id_.erase(id);
}

// ---- choice of the next thread

bool Scheduler::may_run(const Thread& thread) const {
  const Process& process = processes_[index(thread.process)];
  return process.alive && !process.paused;
}

void Scheduler::make_runnable(Thread& thread) {
  thread.state = State::kRunnable;
  thread.wake_at = kNever;
  thread.key = nullptr;
  woken_ = true;
}

Scheduler::Thread& Scheduler::choose(const std::vector<Thread*>& ready) {
  if (!by_priority_) return *ready[schedule_.below(ready.size())];
  return **std::ranges::max_element(
      ready, {}, [](const Thread* each) { return std::pair(each->priority, -each->number); });
}

Scheduler::Thread& Scheduler::pick() {
  woken_ = false;
  if (steps_ > kStepLimit)
    stuck_("threads do not stop to run: " + std::to_string(kStepLimit) + " switch points");
  std::vector<Thread*> ready;
  while (true) {
    std::erase_if(threads_, [&](std::unique_ptr<Thread>& thread) {
      if (thread->state != State::kDone) return false;
      done_.push_back(std::move(thread));
      return true;
    });
    Time next = kNever;
    for (const auto& thread : threads_) {
      if (!may_run(*thread)) continue;
      if (thread->state == State::kBlocked && thread->wake_at <= now_) {
        thread->timed_out = true;
        make_runnable(*thread);
      }
      if (thread->state == State::kRunnable) ready.push_back(thread.get());
      if (thread->state == State::kBlocked) next = std::min(next, thread->wake_at);
    }
    woken_ = false;
    if (steps_ >= call_first_at_ || (ready.empty() && call_first_at_ != INT64_MAX)) {
      call_first_at_ = INT64_MAX;
      make_runnable(*first_);
      return *first_;
    }
    if (!ready.empty()) return choose(ready);
    if (next == kNever) stuck_("no thread can continue");
    if (next > time_limit_) stuck_("the run did not end in time");
    now_ = next;
  }
}

void Scheduler::switch_from(Thread& self) {
  Thread& next = pick();
  mix(static_cast<uint64_t>(next.number));
  if (&next == &self) return;
  ++switches_;
  mix(static_cast<uint64_t>(now_));
  self_ = &next;
  const bool ends = self.state == State::kDone;
  sem_post(&next.baton);
  while (!ends && sem_wait(&self.baton) != 0) {
  }
}

void Scheduler::point(bool yields) {
  ++steps_;
  now_ += kTick;
  bool changes = yields || steps_ >= call_first_at_;
  if (by_priority_) {
    const bool lowers = !change_points_.empty() && steps_ >= change_points_.back();
    if (lowers) change_points_.pop_back();
    if ((lowers || yields) && self_ != first_) self_->priority = --lowest_;
    changes = changes || lowers || woken_;
  } else {
    changes = changes || schedule_.chance(switch_chance_);
  }
  if (changes) switch_from(*self_);
}

void Scheduler::become_blocked(Thread& self, const void* key, Time until) {
  ++steps_;
  now_ += kTick;
  self.state = State::kBlocked;
  self.key = key;
  self.wake_at = until;
  self.timed_out = false;
  switch_from(self);
}

bool Scheduler::block(const void* key, Time until) {
  Thread& self = *self_;
  become_blocked(self, key, until);
  return !self.timed_out;
}

void Scheduler::wake_one(const void* key) {
  std::vector<Thread*> waiting;
  for (const auto& thread : threads_)
    if (thread->state == State::kBlocked && thread->key == key) waiting.push_back(thread.get());
  if (!waiting.empty()) make_runnable(*waiting[schedule_.below(waiting.size())]);
}

void Scheduler::wake_all(const void* key) {
  for (const auto& thread : threads_)
    if (thread->state == State::kBlocked && thread->key == key) make_runnable(*thread);
}

void Scheduler::sleep_until(Time time) {
  block(nullptr, time);
}

void Scheduler::wait_steps(int64_t steps) {
  call_first_at_ = steps_ + steps;
  block(nullptr, kNever);
}

// ---- locks

template <typename Take>
int Scheduler::acquire(const void* mutex, bool only_try, Take&& take) {
  point();
  while (!take(locks_[mutex])) {
    if (only_try) return EBUSY;
    block(mutex, kNever);
  }
  return 0;
}

int Scheduler::lock(const void* mutex, bool recursive, bool only_try) {
  return acquire(mutex, only_try, [&](Lock& lock) {
    if (lock.owner != nullptr && !(recursive && lock.owner == self_)) return false;
    lock.owner = self_;
    ++lock.count;
    return true;
  });
}

int Scheduler::unlock(const void* mutex) {
  const auto found = locks_.find(mutex);
  if (found != locks_.end() && --found->second.count <= 0) {
    locks_.erase(found);
    wake_all(mutex);
  }
  point();
  return 0;
}

int Scheduler::lock_shared(const void* mutex, bool only_try) {
  return acquire(mutex, only_try, [&](Lock& lock) {
    if (lock.owner != nullptr) return false;
    ++lock.readers[self_];
    return true;
  });
}

int Scheduler::lock_exclusive(const void* mutex, bool only_try) {
  return acquire(mutex, only_try, [&](Lock& lock) {
    if (lock.owner != nullptr || !lock.readers.empty()) return false;
    lock.owner = self_;
    return true;
  });
}

int Scheduler::unlock_rw(const void* mutex) {
  const auto found = locks_.find(mutex);
  if (found != locks_.end()) {
    Lock& lock = found->second;
    lock.owner = nullptr;
    const auto reader = lock.readers.find(self_);
    if (reader != lock.readers.end() && --reader->second == 0) lock.readers.erase(reader);
    if (lock.readers.empty()) locks_.erase(found);
    wake_all(mutex);
  }
  point();
  return 0;
}

int Scheduler::wait(const void* condition, const void* mutex, Time until) {
  // the thread must wait before another one can take the mutex and notify it
  const int depth = locks_[mutex].count;
  locks_.erase(mutex);
  wake_all(mutex);
  const bool woken = block(condition, until);
  while (locks_[mutex].owner != nullptr) block(mutex, kNever);
  locks_[mutex].owner = self_;
  locks_[mutex].count = depth;
  return woken ? 0 : ETIMEDOUT;
}

void Scheduler::forget(const void* object) {
  locks_.erase(object);
}

void Scheduler::once(const void* flag, int* state, void (*body)()) {
  constexpr int kDone = 2;  // as in glibc, whose own calls may read it
  lock(flag, false, false);
  if (*state != kDone) {
    try {
      body();
    } catch (...) {
      unlock(flag);
      throw;
    }
    *state = kDone;
  }
  unlock(flag);
}

// ---- the record

void Scheduler::mix(uint64_t value) {
  hash_ = (hash_ ^ value) * 1099511628211ULL;
  hash_ ^= hash_ >> 29U;
}

void Scheduler::note(const std::string& event) {
  for (const char letter : event) mix(static_cast<unsigned char>(letter));
  remark(event);
}

void Scheduler::remark(const std::string& text) {
  if (notes_ == nullptr) return;
  const std::string us = std::to_string(1'000'000 + now_ / kMicrosecond % 1'000'000).substr(1);
  notes_->push_back(std::to_string(now_ / kSecond) + '.' + us + ' ' + text);
}

}  // namespace millrace::simulation
