#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"

namespace millrace::ps {

/// A named point in the code of a server or trainer at which the process kills itself with SIGKILL,
/// for tests of crash recovery. Nothing is flushed or closed, and no peer is notified.
///
/// Thread-safety: reach() from any thread.
class KillPoint {
 public:
  /// \param text  "NAME" or "NAME:COUNT": dies the first time, or the COUNT-th time, that the point
  ///              is reached
  /// Errors: kInvalidArgument, listing the valid names.
  static StatusOr<std::shared_ptr<KillPoint>> parse(std::string_view text);

  /// Reports that the process has reached the point `name`; does not return if it is the chosen
  /// one.
  void reach(std::string_view name);

 private:
  KillPoint(std::string name, int64_t count) : name_(std::move(name)), left_(count) {}

  std::string name_;
  std::atomic<int64_t> left_;
};

/// Reports that the process has reached the point `name`. Does nothing if `point` is null.
inline void reach(const std::shared_ptr<KillPoint>& point, std::string_view name) {
  if (point != nullptr) point->reach(name);
}

/// Wraps file calls with kill points around the writing of a checkpoint folder: before the first
/// file, between data and manifest, and before and after the rename that makes it valid.
///
/// \param of     what is written: "snapshot" or "reshard"; the prefix of the kill point names
/// \param calls  null: the system's file calls
/// \returns `calls` unchanged if `point` is null
std::shared_ptr<io::FileCalls> file_calls_with(const std::shared_ptr<KillPoint>& point,
                                               std::string_view of,
                                               std::shared_ptr<io::FileCalls> calls = nullptr);

}  // namespace millrace::ps
