#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace millrace::tools {

/// The progress of a training run.
struct ProgressState {
  int64_t epoch = 0;  ///< from 1
  int64_t epochs = 0;
  int64_t step = 0;   ///< of the whole run, from 1
  int64_t steps = 0;  ///< 0: unknown
  std::optional<double> loss;
  int64_t examples = 0;  ///< number of examples so far
};

/// How progress is shown.
enum class ProgressMode { kNever, kTerminal, kLines, kJson };

/// Parses "auto", "never" or "json". auto: on a terminal a line that is overwritten, otherwise a
/// line every ten seconds. Nullopt for other words.
std::optional<ProgressMode> progress_mode(const std::string& word);

/// "epoch 1/3  step 120/468  loss 0.3121  51.2 it/s  3277 ex/s  mem 412 MiB  eta 1m08s".
std::string progress_line(const ProgressState& state, double seconds, int64_t rss_bytes);
/// "1m08s", "2h03m", "4s".
std::string duration_text(double seconds);

/// Progress on stderr. Not thread-safe.
class Progress {
 public:
  explicit Progress(ProgressMode mode) : mode_(mode), start_(Clock::now()), shown_(start_) {}
  /// Shows the progress, as often as the mode requires.
  void update(const ProgressState& state);
  /// Shows the last state in any case.
  void finish(const ProgressState& state);

 private:
  using Clock = std::chrono::steady_clock;
  void show(const ProgressState& state, bool last);

  ProgressMode mode_;
  Clock::time_point start_;
  Clock::time_point shown_;
};

}  // namespace millrace::tools
