#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tools/checkpoint/options.h"
#include "tools/run/progress.h"

namespace millrace::tools {

/// Reports how many bytes a command has processed, on stderr: a progress bar on a terminal,
/// otherwise a line every ten seconds. Thread-safe.
class ByteProgress {
 public:
  /// \param total  bytes of the whole work; 0 if unknown
  ByteProgress(ProgressMode mode, std::string what, uint64_t total);
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;
  /// Finishes the bar.
  ~ByteProgress();

  void add(uint64_t bytes);
  /// add() as a function object; this object must outlive it.
  [[nodiscard]] std::function<void(uint64_t)> callback();

 private:
  using Clock = std::chrono::steady_clock;
  void show(bool last);

  ProgressMode mode_;
  std::string what_;
  uint64_t total_;
  std::mutex mutex_;
  uint64_t done_ = 0;
  Clock::time_point start_;
  Clock::time_point shown_;
  bool visible_ = false;
};

/// The progress reporter that the command's flags ask for; silent with -q.
ByteProgress progress_of(const Tool& tool, const CheckpointFlags& flags, std::string what,
                         uint64_t total);

/// The same for callbacks that end with their last copy.
std::shared_ptr<ByteProgress> progress_pointer(const Tool& tool, const CheckpointFlags& flags,
                                               std::string what, uint64_t total);

/// "verify  [######......]  50%  512.0 MiB  900.0 MiB/s  eta 3s"; no bar if the total is unknown.
std::string byte_progress_line(const std::string& what, uint64_t done, uint64_t total,
                               double seconds);
/// "1.5 GiB", "13 B".
std::string byte_text(uint64_t bytes);

}  // namespace millrace::tools
