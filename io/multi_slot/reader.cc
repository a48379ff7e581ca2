#include "io/multi_slot/reader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/errors.h"
#include "io/multi_slot/line_stream.h"
#include "io/multi_slot/piped_bytes.h"

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

  bool is_stopped() {
    const std::lock_guard lock(mutex);
    return stop;
  }

  void finish(Status status) {
    const std::lock_guard lock(mutex);
    error = std::move(status);
    done = true;
    changed.notify_all();
  }
};

namespace {

// The bytes of a file, or of what its command makes of them.
StatusOr<std::unique_ptr<InputBytes>> open_piped(const std::string& path,
                                                 const std::string& command,
                                                 std::function<bool()> stopped) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<InputBytes> bytes, open_input_bytes(path));
  if (command.empty()) return bytes;
  auto piped = pipe_through(command, std::move(bytes), std::move(stopped));
  if (!piped.ok()) return std::move(piped).status().in_file(path);
  return piped;
}

// Calls `use` for every line of a file, without the header, with its position. Stops if it returns
// false, and with an error after `stopped` has returned true.
StatusOr<bool> for_each_line(const MultiSlotSource& source, const std::string& path,
                             std::function<bool()> stopped,
                             llvm::function_ref<StatusOr<bool>(std::string_view, int64_t)> use) {
  const TextFormat& format = source.format;
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<InputBytes> bytes,
                            open_piped(path, source.pipe_command, std::move(stopped)));
  LineStream lines(std::move(bytes));
  std::string_view line;
  while (true) {
    StatusOr<bool> more = lines.next(line);
    if (!more.ok()) return std::move(more).status().in_file(path);
    if (!*more) return true;
    if (format.header && lines.number() == 1) continue;
    more = use(line, lines.number() - (format.header ? 2 : 1));
    if (!more.ok()) {
      const Status& status = more.status();
      return Status(status.code(), fmt::format("line {}: {}", lines.number(), status.message()))
          .in_file(path);
    }
    if (!*more) return false;
  }
}

// The same for the rows of a stream.
StatusOr<bool> for_each_row(const MultiSlotSource& source, const std::string& name,
                            const ValueCounts* counts,
                            llvm::function_ref<StatusOr<bool>(ArrowRows&, int64_t)> use) {
  const auto found = source.streams.find(name);
  if (found == source.streams.end()) return Internal("there is no stream '{}'", name);
  ArrowRows rows(source.slots, counts);
  if (Status status = rows.open(found->second); !status.ok())
    return std::move(status).in_file(name);
  while (true) {
    StatusOr<bool> more = rows.next();
    if (!more.ok()) return std::move(more).status().in_file(name);
    if (!*more) return true;
    more = use(rows, rows.number());
    if (!more.ok()) {
      const Status& status = more.status();
      return Status(status.code(), fmt::format("row {}: {}", rows.number(), status.message()))
          .in_file(name);
    }
    if (!*more) return false;
  }
}

}  // namespace

StatusOr<std::shared_ptr<const ValueCounts>> count_values(const MultiSlotSource& source,
                                                          std::vector<int64_t>* lines) {
  bool wanted = false;
  for (const Slot& slot : source.slots)
    wanted = wanted || (slot.is_used && slot.cells.min_count > 0);
  if (!wanted) return std::shared_ptr<const ValueCounts>();
  auto counts = std::make_shared<ValueCounts>(source.slots.size());
  DelimitedLines parser(source.format, source.slots, nullptr);
  std::vector<int64_t> found(source.files.size());
  for (size_t f = 0; f < source.files.size(); ++f) {
    const auto add = [&](std::string_view line, int64_t at) -> StatusOr<bool> {
      found[f] = at + 1;
      MILLRACE_RETURN_IF_ERROR(parser.count(line, *counts));
      return true;
    };
    const auto add_row = [&](ArrowRows& rows, int64_t at) -> StatusOr<bool> {
      found[f] = at + 1;
      MILLRACE_RETURN_IF_ERROR(rows.count(*counts));
      return true;
    };
    const std::string& path = source.files[f];
    MILLRACE_RETURN_IF_ERROR((source.format.arrow ? for_each_row(source, path, nullptr, add_row)
                                                  : for_each_line(source, path, {}, add))
                                 .status());
  }
  if (lines != nullptr) *lines = std::move(found);
  return std::shared_ptr<const ValueCounts>(std::move(counts));
}

MultiSlotReader::MultiSlotReader(MultiSlotSource source)
    : source_(std::move(source)), lines_(source_.files.size()) {
  const size_t count = std::clamp<size_t>(static_cast<size_t>(std::max(source_.readers, 1)), 1,
                                          std::max<size_t>(source_.files.size(), 1));
  source_.readers = static_cast<int>(count);
  source_.batches_ahead = std::max<size_t>(source_.batches_ahead, 1);
  for (size_t r = 0; r < count; ++r) lanes_.push_back(std::make_unique<Lane>());
  for (size_t r = 0; r < count; ++r) {
    try {
      lanes_[r]->thread = std::thread([this, r] { read_in_thread(*lanes_[r], r); });
    } catch (const std::exception& error) {
      lanes_[r]->finish(
          Status(StatusCode::kResource, fmt::format("no thread for a reader: {}", error.what())));
    }
  }
}

MultiSlotReader::~MultiSlotReader() {
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    lane->stop = true;
    lane->changed.notify_all();
  }
  for (const auto& lane : lanes_)
    if (lane->thread.joinable()) lane->thread.join();
}

// A reader that fails for whatever reason reports it; the caller must not wait for it forever, or
// take the end of its files for the end of the examples.
void MultiSlotReader::read_in_thread(Lane& lane, size_t first) {
  try {
    read_files(lane, first);
  } catch (const std::exception& error) {
    lane.finish(Status(StatusCode::kResource, fmt::format("a reader failed: {}", error.what())));
  }
}

void MultiSlotReader::read_files(Lane& lane, size_t first) {
  SlotRows batch;
  size_t file = first;
  DelimitedLines delimited(source_.format, source_.slots, source_.counts.get());
  const auto hand_over = [&] { return lane.put(batch, source_.batches_ahead); };
  const auto add = [&](std::string_view line, int64_t at) -> StatusOr<bool> {
    lines_[file] = at + 1;
    if (!source_.share.has(file, at)) return true;
    MILLRACE_RETURN_IF_ERROR(source_.format.delimited
                                 ? delimited.append(line, batch)
                                 : parse_multi_slot_line(line, source_.slots, batch));
    return batch.rows < source_.batch_size || hand_over();
  };
  const auto add_row = [&](ArrowRows& rows, int64_t at) -> StatusOr<bool> {
    lines_[file] = at + 1;
    if (!source_.share.has(file, at)) return true;
    MILLRACE_RETURN_IF_ERROR(rows.append(batch));
    return batch.rows < source_.batch_size || hand_over();
  };
  for (; file < source_.files.size(); file += lanes_.size()) {
    const std::string& path = source_.files[file];
    StatusOr<bool> more = source_.format.arrow
                              ? for_each_row(source_, path, source_.counts.get(), add_row)
                              : for_each_line(
                                    source_, path, [&lane] { return lane.is_stopped(); }, add);
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
