#include "tools/run/progress.h"

#include <cmath>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "framework/base/json_writer.h"

namespace millrace::tools {
namespace {

constexpr std::chrono::milliseconds kTerminalEvery(100);
constexpr std::chrono::seconds kLineEvery(10);

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

std::optional<ProgressMode> progress_mode(const std::string& word) {
  if (word == "never") return ProgressMode::kNever;
  if (word == "json") return ProgressMode::kJson;
  if (word != "auto") return std::nullopt;
  return isatty(STDERR_FILENO) == 1 ? ProgressMode::kTerminal : ProgressMode::kLines;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string progress_line(const jobs::ProgressState& state, double seconds, int64_t rss_bytes) {
  const double rate = seconds > 0 ? static_cast<double>(state.step) / seconds : 0;
  std::string line;
  if (state.epochs > 0) line += fmt::format("epoch {}/{}  ", state.epoch, state.epochs);
  line += fmt::format("step {}", state.step);
  if (state.steps > 0) line += fmt::format("/{}", state.steps);
  if (state.loss) line += fmt::format("  loss {:.4g}", *state.loss);
  line += fmt::format("  {:.1f} it/s", rate);
  if (state.examples > 0 && seconds > 0)
    line += fmt::format("  {:.0f} ex/s", static_cast<double>(state.examples) / seconds);
  line += fmt::format("  mem {} MiB", rss_bytes >> 20U);
  if (rate > 0 && state.step < state.steps)
    line += "  eta " + duration_text(static_cast<double>(state.steps - state.step) / rate);
  return line;
}

void Progress::update(const jobs::ProgressState& state) {
  if (mode_ == ProgressMode::kNever) return;
  const auto since = Clock::now() - shown_;
  if (mode_ == ProgressMode::kTerminal ? since < kTerminalEvery : since < kLineEvery) return;
  show(state, /*last=*/false);
}

void Progress::finish(const jobs::ProgressState& state) {
  if (mode_ != ProgressMode::kNever) show(state, /*last=*/true);
}

void Progress::show(const jobs::ProgressState& state, bool last) {
  shown_ = Clock::now();
  const double seconds = std::chrono::duration<double>(shown_ - start_).count();
  if (mode_ == ProgressMode::kJson) {
    JsonWriter out;
    out.begin_object().member("event", "progress").member("epoch", state.epoch);
    out.member("step", state.step).member("steps", state.steps).member("seconds", seconds);
    if (state.loss) out.member("loss", *state.loss);
    out.member("examples", state.examples).end_object();
    std::string line = out.take();
    std::erase(line, '\n');
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  const std::string line = progress_line(state, seconds, resident_bytes());
  if (mode_ == ProgressMode::kTerminal)
    std::fprintf(stderr, "\r\x1b[K%s%s", line.c_str(), last ? "\n" : "");
  else
    std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
}

}  // namespace millrace::tools
