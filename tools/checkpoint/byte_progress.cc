#include "tools/checkpoint/byte_progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "framework/base/json_writer.h"

namespace millrace::tools {

std::string byte_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string byte_progress_line(const std::string& what, uint64_t done, uint64_t total,
                               double seconds) {
  constexpr uint64_t kWidth = 24;
  std::string line = what;
  if (total > 0) {
    const uint64_t known = std::min(done, total);
    const auto filled = static_cast<size_t>(
        static_cast<double>(known) / static_cast<double>(total) * static_cast<double>(kWidth));
    line += fmt::format(
        "  [{}{}] {:3}%", std::string(filled, '#'), std::string(kWidth - filled, '.'),
        static_cast<int>(static_cast<double>(known) / static_cast<double>(total) * 100));
  }
  line += "  " + byte_text(done);
  if (seconds <= 0 || done == 0) return line;
  const double rate = static_cast<double>(done) / seconds;
  line += fmt::format("  {}/s", byte_text(static_cast<uint64_t>(rate)));
  if (total > done) line += "  eta " + duration_text(static_cast<double>(total - done) / rate);
  return line;
}

namespace {

ProgressMode mode_of(const Tool& tool, const CheckpointFlags& flags) {
  const ProgressMode mode = progress_mode(flags.progress).value_or(ProgressMode::kNever);
  return tool.common().quiet ? ProgressMode::kNever : mode;
}

}  // namespace

ByteProgress progress_of(const Tool& tool, const CheckpointFlags& flags, std::string what,
                         uint64_t total) {
  return {mode_of(tool, flags), std::move(what), total};
}

std::shared_ptr<ByteProgress> progress_pointer(const Tool& tool, const CheckpointFlags& flags,
                                               std::string what, uint64_t total) {
  return std::make_shared<ByteProgress>(mode_of(tool, flags), std::move(what), total);
}

ByteProgress::ByteProgress(ProgressMode mode, std::string what, uint64_t total)
    : mode_(mode), what_(std::move(what)), total_(total), start_(Clock::now()), shown_(start_) {}

ByteProgress::~ByteProgress() {
  if (visible_) show(true);
}

std::function<void(uint64_t)> ByteProgress::callback() {
  return [this](uint64_t bytes) { add(bytes); };
}

void ByteProgress::add(uint64_t bytes) {
  if (mode_ == ProgressMode::kNever) return;
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  const auto since = Clock::now() - shown_;
  const bool due = mode_ == ProgressMode::kTerminal ? since > std::chrono::milliseconds(100)
                                                    : since > std::chrono::seconds(10);
  if (due) show(false);
}

void ByteProgress::show(bool last) {
  shown_ = Clock::now();
  visible_ = true;
  const double seconds = std::chrono::duration<double>(shown_ - start_).count();
  if (mode_ == ProgressMode::kJson) {
    JsonWriter out(0);
    out.begin_object().member("event", "progress").member("what", what_).member("bytes", done_);
    const std::string line =
        out.member("total", total_).member("seconds", seconds).end_object().take();
    std::fputs(line.c_str(), stderr);
    return;
  }
  const std::string line = byte_progress_line(what_, done_, total_, seconds);
  if (mode_ == ProgressMode::kTerminal) {
    std::fprintf(stderr, "\r%s\x1b[K%s", line.c_str(), last ? "\n" : "");
    std::fflush(stderr);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace millrace::tools
