#include "ps/communicator/send_lanes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "ps/communicator/merge.h"

namespace millrace::ps {
namespace {

constexpr auto kIdleWake = std::chrono::seconds(1);
// Up to this size, the cost per call exceeds the cost per byte.
constexpr int64_t kLightBytes = 64 << 10;

}  // namespace

SendLanes::SendLanes(std::vector<const CommContext*> contexts, LaneOptions options, Send send)
    : options_(options), send_(std::move(send)), lanes_(contexts.size()) {
  for (size_t i = 0; i < contexts.size(); ++i) {
    lanes_[i].context = contexts[i];
    lanes_[i].names = contexts[i]->vars();
    lanes_[i].queues = std::vector<Queue>(lanes_[i].names.size());
  }
}

SendLanes::~SendLanes() {
  (void)stop(/*flush=*/false, Clock::now());  // callers that need the error call stop()
}

void SendLanes::start() {
  if (lanes_.empty()) return;
  const std::lock_guard lock(mutex_);
  stopping_ = abandon_ = false;
  error_ = Ok();
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
}

Status SendLanes::stop(bool flush, Deadline deadline) {
  Status flushed;
  {
    std::unique_lock lock(mutex_);
    if (!flush) drop_all();
    flush_merge_ = static_cast<size_t>(options_.merge);
    for (Lane& lane : lanes_) list_if_ready(lane);
    work_.notify_all();
    flushed = wait_until_empty(lock, deadline);
    if (flushed.ok() && flush) flushed = leftover();
    stopping_ = abandon_ = true;
    drop_all();
    work_.notify_all();
    space_.notify_all();
  }
  // A call in progress ends by its own deadline.
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  const std::lock_guard lock(mutex_);
  flush_merge_ = 0;
  return error_.ok() ? flushed : error_;
}

Status SendLanes::push(size_t index, size_t var, const Value* from, Value* owned) {
  Lane& lane = lanes_[index];
  Queue& queue = lane.queues[var];
  Value value;
  std::unique_lock lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(wait_for_place(lock, lane, queue, var));
  if (owned != nullptr) {
    value = std::move(*owned);
  } else {
    if (!queue.spare.empty()) {
      value = std::move(queue.spare.back());
      queue.spare.pop_back();
    }
    ++queue.reserved;
    lock.unlock();
    Status copied = copy_value(*from, value);
    lock.lock();
    --queue.reserved;
    MILLRACE_RETURN_IF_ERROR(std::move(copied));
    if (!error_.ok()) return error_;
    if (stopping_) return InvalidArgument("'{}': the communicator is stopped", lane.names[var]);
  }
  queue.waiting.push_back(std::move(value));
  lane.last_arrival = Clock::now();
  list_if_ready(lane);
  auto wake = Clock::time_point::max();
  if (!options_.on_demand) wake = lane.last_arrival + std::chrono::milliseconds(options_.wait_ms);
  if (find_leaving(wake) != ready_.end() || wake < next_wake_) work_.notify_one();
  return Ok();
}

Status SendLanes::wait_for_place(std::unique_lock<std::mutex>& lock, Lane& lane, const Queue& queue,
                                 size_t var) {
  const auto has_place = [&] {
    // Values that the next message will include do not count as waiting.
    const size_t gathered = options_.on_demand || lane.sending ? 0 : merge_limit();
    return queue.waiting.size() + queue.reserved < static_cast<size_t>(options_.queue) + gathered;
  };
  if (!has_place()) {
    lane.awaited = true;
    work_.notify_one();
  }
  const auto deadline = Clock::now() + std::chrono::milliseconds(options_.deadline_ms);
  const bool in_time = pauses_.wait_until(space_, lock, deadline,
                                          [&] { return !error_.ok() || stopping_ || has_place(); });
  if (!error_.ok()) return error_;
  if (stopping_) return InvalidArgument("'{}': the communicator is stopped", lane.names[var]);
  if (in_time) return Ok();
  return {StatusCode::kDistributed,
          fmt::format("'{}': its send queue of {} batches has been full for {} ms", lane.names[var],
                      options_.queue, options_.deadline_ms)};
}

Status SendLanes::flush(int merge, Deadline deadline) {
  std::unique_lock lock(mutex_);
  flush_merge_ = static_cast<size_t>(merge);
  for (Lane& lane : lanes_) list_if_ready(lane);
  work_.notify_all();
  const Status status = wait_until_empty(lock, deadline);
  flush_merge_ = 0;
  MILLRACE_RETURN_IF_ERROR(status);
  return leftover();
}

Status SendLanes::wait_until_empty(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  const auto is_empty = [&] {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [&](const Lane& lane) { return !lane.sending && complete(lane) == 0; });
  };
  const bool in_time =
      pauses_.wait_until(space_, lock, deadline, [&] { return !error_.ok() || is_empty(); });
  if (!error_.ok()) return error_;
  if (in_time) return Ok();
  for (const Lane& lane : lanes_) {
    if (lane.sending || complete(lane) > 0)
      return {StatusCode::kDistributed,
              fmt::format("'{}' was not sent by the deadline", lane.context->var_name)};
  }
  return Ok();
}

// A context whose vars were sent unequally often has values left that cannot be sent.
Status SendLanes::leftover() const {
  for (const Lane& lane : lanes_) {
    const auto full = std::find_if(lane.queues.begin(), lane.queues.end(),
                                   [](const Queue& queue) { return !queue.waiting.empty(); });
    if (full == lane.queues.end()) continue;
    const auto empty = std::find_if(lane.queues.begin(), lane.queues.end(),
                                    [](const Queue& queue) { return queue.waiting.empty(); });
    return InvalidArgument("context '{}': '{}' was sent more often than '{}'",
                           lane.context->var_name,
                           lane.names[static_cast<size_t>(full - lane.queues.begin())],
                           lane.names[static_cast<size_t>(empty - lane.queues.begin())]);
  }
  return Ok();
}

size_t SendLanes::complete(const Lane& lane) const {
  size_t count = lane.queues.front().waiting.size();
  for (const Queue& queue : lane.queues) count = std::min(count, queue.waiting.size());
  return count;
}

size_t SendLanes::merge_limit() const {
  return flush_merge_ > 0 ? flush_merge_ : static_cast<size_t>(options_.merge);
}

void SendLanes::list(Lane& lane) {
  lane.listed = true;
  lane.listed_at = Clock::now();
  lane.light = is_light(lane);
  ready_.push_back(static_cast<size_t>(&lane - lanes_.data()));
}

void SendLanes::list_if_ready(Lane& lane) {
  if (lane.sending || lane.listed) return;
  const size_t count = complete(lane);
  const bool full = !options_.on_demand && count >= static_cast<size_t>(options_.merge);
  if (count > 0 && (full || flush_merge_ > 0)) list(lane);
}

bool SendLanes::is_light(const Lane& lane) const {
  int64_t bytes = 0;
  for (const Queue& queue : lane.queues) {
    const auto* const tensor =
        queue.waiting.empty() ? nullptr : queue.waiting.front().get_if<Tensor>();
    if (tensor == nullptr) return false;
    bytes += tensor->bytes();
  }
  return bytes <= kLightBytes;
}

// Lists the lanes that have waited long enough for another batch. A listed lane sets no time: it
// may have to wait for a call that is under way, and the thread would check without a pause.
void SendLanes::list_overdue(Clock::time_point& wake) {
  const auto now = Clock::now();
  for (Lane& candidate : lanes_) {
    if (candidate.sending || candidate.listed || complete(candidate) == 0) continue;
    const auto due = candidate.last_arrival + std::chrono::milliseconds(options_.wait_ms);
    if (due <= now) {
      list(candidate);
    } else {
      wake = std::min(wake, due);
    }
  }
}

// Whether the small values that are ready may be sent now; if not, sets the latest time to check
// again. A step's small gradients arrive within microseconds of each other, and a separate call for
// each costs more than waiting.
bool SendLanes::light_may_leave(Clock::time_point& wake) const {
  if (light_under_way_) return false;
  bool complete = true;
  auto due = Clock::time_point::max();
  for (const Lane& lane : lanes_) {
    if (lane.expected && !lane.listed) complete = false;
    if (!lane.listed || !lane.light) continue;
    due =
        std::min(due, lane.awaited ? Clock::time_point::min() : lane.listed_at + options_.patience);
  }
  if (complete || flush_merge_ > 0 || due <= Clock::now()) return true;
  wake = std::min(wake, due);
  return false;
}

// The first lane of the list that may be emptied now. If there is none, sets the time to check
// again.
std::deque<size_t>::iterator SendLanes::find_leaving(Clock::time_point& wake) {
  std::optional<bool> light;
  const auto leaves = [&](size_t index) {
    if (!lanes_[index].light) return true;
    if (!light) light = light_may_leave(wake);
    return *light;
  };
  return std::find_if(ready_.begin(), ready_.end(), leaves);
}

// Removes the next lane to send from the list.
bool SendLanes::pop_ready(size_t& lane, Clock::time_point& wake) {
  const auto found = find_leaving(wake);
  if (found == ready_.end()) return false;
  lane = *found;
  ready_.erase(found);
  return true;
}

// Waits for the next lane to empty. False: the thread must end.
bool SendLanes::next(std::unique_lock<std::mutex>& lock, size_t& lane) {
  while (!abandon_) {
    auto wake = Clock::now() + kIdleWake;
    if (!options_.on_demand) list_overdue(wake);
    if (pop_ready(lane, wake)) return true;
    next_wake_ = wake;
    work_.wait_until(lock, wake);
  }
  return false;
}

void SendLanes::work() {
  std::unique_lock lock(mutex_);
  size_t lane = 0;
  try {
    while (next(lock, lane)) run(lock, lane);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    fail_locked(status_of_exception("while gradients are sent"));
  }
}

void SendLanes::take(size_t index, std::vector<Taken>& taken) {
  Lane& lane = lanes_[index];
  lane.listed = lane.awaited = false;
  const size_t count = std::min(complete(lane), merge_limit());
  if (count == 0) return;  // was dropped in the meantime
  lane.sending = true;
  Taken& load = taken.emplace_back();
  load.lane = index;
  load.count = count;
  load.batches.resize(lane.queues.size());
  for (size_t var = 0; var < load.batches.size(); ++var) {
    auto& waiting = lane.queues[var].waiting;
    for (size_t i = 0; i < count; ++i) {
      load.batches[var].push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
  }
}

// Keeps the memory of sent values for later ones.
void SendLanes::give_back(Taken& taken) {
  Lane& lane = lanes_[taken.lane];
  lane.sending = false;
  for (size_t var = 0; var < taken.batches.size(); ++var) {
    auto& spare = lane.queues[var].spare;
    for (Value& value : taken.batches[var]) {
      if (value.initialized() && spare.size() <= static_cast<size_t>(options_.queue))
        spare.push_back(std::move(value));
    }
  }
  list_if_ready(lane);
}

void SendLanes::run(std::unique_lock<std::mutex>& lock, size_t index) {
  std::vector<Taken> taken;
  const bool light = lanes_[index].light;
  take(index, taken);
  for (auto at = ready_.begin(); light && at != ready_.end();) {
    if (lanes_[*at].light) {
      take(*at, taken);
      at = ready_.erase(at);
    } else {
      ++at;
    }
  }
  if (taken.empty()) return;
  if (light) {
    light_under_way_ = true;
    for (Lane& lane : lanes_) lane.expected = false;
    for (const Taken& load : taken) lanes_[load.lane].expected = true;
  }
  if (!ready_.empty()) work_.notify_one();
  lock.unlock();
  space_.notify_all();
  Status status = send_batches(taken);
  lock.lock();
  if (light) light_under_way_ = false;
  for (Taken& load : taken) {
    if (status.ok()) {
      ++messages_;
      batches_ += static_cast<int64_t>(load.count);
    }
    give_back(load);
  }
  if (!status.ok()) {
    const std::string& first = lanes_[index].context->var_name;
    fail_locked(std::move(status).with_note(
        taken.size() == 1
            ? fmt::format("while sending '{}'", first)
            : fmt::format("while sending '{}' and {} more", first, taken.size() - 1)));
  }
  if (!ready_.empty()) work_.notify_one();
  space_.notify_all();
}

Status SendLanes::send_batches(std::vector<Taken>& taken) {
  std::vector<Message> messages;
  for (Taken& load : taken) {
    const CommContext& context = *lanes_[load.lane].context;
    for (std::vector<Value>& values : load.batches) {
      MILLRACE_RETURN_IF_ERROR(merge_values(values, !context.aggregate, options_.adds_up_rows));
      load.merged.push_back(std::move(values.front()));
    }
    messages.push_back({load.lane, load.merged, static_cast<int>(load.count)});
  }
  Status status = send_(messages);
  for (Taken& load : taken) {
    for (size_t var = 0; var < load.batches.size(); ++var)
      load.batches[var].front() = std::move(load.merged[var]);
  }
  return status;
}

void SendLanes::drop_all() {
  for (Lane& lane : lanes_) {
    lane.listed = lane.awaited = false;
    for (Queue& queue : lane.queues) queue.waiting.clear();
  }
  ready_.clear();
}

void SendLanes::fail_locked(Status status) {
  if (!error_.ok()) return;
  error_ = std::move(status);
  drop_all();
  space_.notify_all();
}

void SendLanes::fail(Status status) {
  const std::lock_guard lock(mutex_);
  fail_locked(std::move(status));
}

Status SendLanes::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

int64_t SendLanes::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_;
}

int64_t SendLanes::batches() const {
  const std::lock_guard lock(mutex_);
  return batches_;
}

}  // namespace millrace::ps
