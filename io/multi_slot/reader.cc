#include "io/multi_slot/reader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "framework/base/errors.h"
#include "io/multi_slot/line_stream.h"

namespace millrace::io {

// State shared by one reader thread and the caller.
struct MultiSlotReader::Lane {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<SlotRows> ready;
  std::vector<SlotRows> spare;
  Status error;        // reported after the batches in `ready`
  bool done = false;   // the reader adds no more batches
  bool stop = false;   // the caller takes no more batches
  std::thread thread;  // last member: it uses the others

  // Queues a batch and replaces it with an empty one. False if the caller has stopped.
  bool put(SlotRows& batch, size_t ahead) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stop || ready.size() < ahead; });
    if (stop) return false;
    ready.push_back(std::move(batch));
    batch = SlotRows();
    if (!spare.empty()) {
      batch = std::move(spare.back());
      spare.pop_back();
    }
    changed.notify_all();
    return true;
  }

  void finish(Status status) {
    const std::lock_guard lock(mutex);
    error = std::move(status);
    done = true;
    changed.notify_all();
  }
};

namespace {

// Appends the instances of a file, calling hand_over for every full batch. False if the caller has
// stopped.
StatusOr<bool> read_file(const std::string& path, const MultiSlotSource& source, SlotRows& batch,
                         const std::function<bool()>& hand_over) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<InputBytes> bytes, open_input_bytes(path));
  LineStream lines(std::move(bytes));
  std::string_view line;
  while (true) {
    StatusOr<bool> more = lines.next(line);
    if (!more.ok()) return std::move(more).status().in_file(path);
    if (!*more) return true;
    if (Status status = parse_multi_slot_line(line, source.slots, batch); !status.ok()) {
      return Status(status.code(), fmt::format("line {}: {}", lines.number(), status.message()))
          .in_file(path);
    }
    if (batch.rows >= source.batch_size && !hand_over()) return false;
  }
}

}  // namespace

MultiSlotReader::MultiSlotReader(MultiSlotSource source) : source_(std::move(source)) {
  const size_t count = std::clamp<size_t>(static_cast<size_t>(std::max(source_.readers, 1)), 1,
                                          std::max<size_t>(source_.files.size(), 1));
  source_.readers = static_cast<int>(count);
  source_.batches_ahead = std::max<size_t>(source_.batches_ahead, 1);
  for (size_t r = 0; r < count; ++r) lanes_.push_back(std::make_unique<Lane>());
  for (size_t r = 0; r < count; ++r)
    lanes_[r]->thread = std::thread([this, r] { read_files(*lanes_[r], r); });
}

MultiSlotReader::~MultiSlotReader() {
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    lane->stop = true;
    lane->changed.notify_all();
  }
  for (const auto& lane : lanes_) lane->thread.join();
}

void MultiSlotReader::read_files(Lane& lane, size_t first) const {
  SlotRows batch;
  const auto hand_over = [&] { return lane.put(batch, source_.batches_ahead); };
  for (size_t f = first; f < source_.files.size(); f += lanes_.size()) {
    StatusOr<bool> more = read_file(source_.files[f], source_, batch, hand_over);
    if (!more.ok()) return lane.finish(std::move(more).status());
    if (!*more) return;
  }
  if (batch.rows > 0 && !hand_over()) return;
  lane.finish(Ok());
}

Status MultiSlotReader::next(SlotRows& batch) {
  batch.clear();
  for (size_t ended = 0; ended < lanes_.size();) {
    Lane& lane = *lanes_[turn_];
    std::unique_lock lock(lane.mutex);
    if (lane.ready.empty() && !lane.done) {
      const auto begin = std::chrono::steady_clock::now();
      lane.changed.wait(lock, [&] { return lane.done || !lane.ready.empty(); });
      waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    if (lane.ready.empty() && !lane.error.ok()) return lane.error;
    turn_ = (turn_ + 1) % lanes_.size();
    if (lane.ready.empty()) {
      ++ended;
      continue;
    }
    lane.spare.push_back(std::move(batch));
    batch = std::move(lane.ready.front());
    lane.ready.pop_front();
    lane.changed.notify_all();
    return Ok();
  }
  return Ok();
}

}  // namespace millrace::io
