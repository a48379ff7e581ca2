#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "executor/executor.h"
#include "framework/base/file.h"
#include "framework/base/status.h"

namespace millrace::jobs {

/// What the steps of a trainer write to files, as the original's trainers do.
struct DumpOptions {
  std::vector<std::string> fields;  ///< vars with one row or sequence per example
  std::vector<std::string> params;  ///< vars that are written whole
  std::string folder;               ///< receives a file per trainer; is created if necessary
  int64_t interval = 1;             ///< steps from one that is written to the next
  int trainer = 0;                  ///< number of this trainer or rank
  Replace replace = Replace::kNo;   ///< of a file of an earlier run

  [[nodiscard]] bool wanted() const { return !fields.empty() || !params.empty(); }
};

/// Writes vars of steps to <folder>/part-<trainer>, one line per example and per parameter:
///
///   12:0<tab>prob:1:0.25<tab>ids:2:7:9     step and example; per field name, count and values
///   (12,fc_0.w_0):0.5:-1                   step and parameter after it; values
///
/// Floats have as many digits as necessary to read the same value again.
/// Thread-safety: write() may be called concurrently.
class StepDump {
 public:
  /// Creates the file. Errors: kUsage without a folder, or if the file exists and may not be
  /// replaced; kIo.
  static StatusOr<std::unique_ptr<StepDump>> open(DumpOptions options);
  StepDump(const StepDump&) = delete;
  StepDump& operator=(const StepDump&) = delete;
  ~StepDump();

  /// The vars to fetch in every step: those given, then those that are only dumped.
  [[nodiscard]] std::vector<std::string> with(const std::vector<std::string>& fetches) const;
  /// Writes a step if it is one of the interval, and removes the values that are not in `fetches`.
  /// \param examples  of the step  \param values  of with(fetches)
  /// Errors: kInvalidData naming the field that has another number of rows, or a value that is not
  /// a tensor of numbers; kIo.
  Status write(int64_t step, int64_t examples, const std::vector<std::string>& fetches,
               executor::NamedValues& values);
  /// Removes the lines of a step and later ones, which are made again. Steps must have been written
  /// in order. Errors: kIo.
  Status go_back(int64_t step);

 private:
  explicit StepDump(DumpOptions options) : options_(std::move(options)) {}
  Status append_fields(int64_t step, int64_t examples, const executor::NamedValues& values,
                       std::string& text) const;
  Status append_params(int64_t step, const executor::NamedValues& values, std::string& text) const;

  DumpOptions options_;
  std::string path_;
  int fd_ = -1;
  std::mutex writing_;                               ///< guards the file, and what follows
  int64_t bytes_ = 0;                                ///< written
  std::vector<std::pair<int64_t, int64_t>> begins_;  ///< steps and where their lines begin
};

}  // namespace millrace::jobs
