#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "jobs/stats/progress_state.h"

namespace millrace::tools {

/// How progress is shown.
enum class ProgressMode { kNever, kTerminal, kLines, kJson };

/// Parses "auto", "never" or "json". auto: on a terminal a line that is overwritten, otherwise a
/// line every ten seconds. Nullopt for other words.
std::optional<ProgressMode> progress_mode(const std::string& word);

/// "epoch 1/3  step 120/468  loss 0.3121  51.2 it/s  3277 ex/s  mem 412 MiB  eta 1m08s".
std::string progress_line(const jobs::ProgressState& state, double seconds, int64_t rss_bytes);
/// "1m08s", "2h03m", "4s".
std::string duration_text(double seconds);

/// Progress on stderr. Not thread-safe.
class Progress final : public jobs::ProgressSink {
 public:
  explicit Progress(ProgressMode mode) : mode_(mode), start_(Clock::now()), shown_(start_) {}
  /// Restarts the measured time.
  void begin() override { start_ = shown_ = Clock::now(); }
  /// Shows the progress, as often as the mode requires.
  void update(const jobs::ProgressState& state) override;
  /// Shows the last state in any case.
  void finish(const jobs::ProgressState& state) override;

 private:
  using Clock = std::chrono::steady_clock;
  void show(const jobs::ProgressState& state, bool last);

  ProgressMode mode_;
  Clock::time_point start_;
  Clock::time_point shown_;
};

}  // namespace millrace::tools
