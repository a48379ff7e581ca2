#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"

namespace millrace::ps {

/// A place in the work of a server or trainer where its process ends itself by SIGKILL, for tests
/// of what a job survives. Nothing is flushed, closed or told to anybody.
///
/// Thread-safety: reach() from any thread.
class KillPoint {
 public:
  /// \param text  "NAME" or "NAME:COUNT": at the first, or the COUNT-th time that it is reached
  /// Errors: kInvalidArgument with the names that there are.
  static StatusOr<std::shared_ptr<KillPoint>> parse(std::string_view text);

  /// The process is at this place.
  void reach(std::string_view name);

 private:
  KillPoint(std::string name, int64_t count) : name_(std::move(name)), left_(count) {}

  std::string name_;
  std::atomic<int64_t> left_;
};

/// Reaches the place where there is a point; null: nothing happens.
inline void reach(const std::shared_ptr<KillPoint>& point, std::string_view name) {
  if (point != nullptr) point->reach(name);
}

/// File calls with the places of what is written in the form of a checkpoint: before its first
/// file, between data and manifest, before and after the rename that makes it valid.
///
/// \param of     what is written: "snapshot" or "reshard", with which the names of the places begin
/// \param calls  null: those of the system
/// \returns `calls` for no point
std::shared_ptr<io::FileCalls> file_calls_with(const std::shared_ptr<KillPoint>& point,
                                               std::string_view of,
                                               std::shared_ptr<io::FileCalls> calls = nullptr);

}  // namespace millrace::ps
