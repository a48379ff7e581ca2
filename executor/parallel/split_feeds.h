#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/executor.h"
#include "executor/parallel/options.h"
#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::executor {

/// Number of rows for each device.
///
/// \param rows   of the whole tensor
/// \param given  rows for each device; empty: use the rule
/// \returns one entry per device; 0 only if there are fewer rows than devices
/// Errors: kInvalidArgument if the given rows do not add up.
StatusOr<std::vector<int64_t>> divide_rows(int64_t rows, int devices, SplitRule rule,
                                           llvm::ArrayRef<int64_t> given);

/// Rows of a tensor that count for splitting: sequences of its outermost LoD level, else dim 0; 1
/// for rank 0.
int64_t splittable_rows(const Tensor& tensor);

/// A view of rows [begin, end) as splittable_rows() counts them, with its own LoD.
Tensor slice_rows(const Tensor& tensor, int64_t begin, int64_t end);

/// The feeds of one device in one run of its ops.
struct DeviceFeed {
  NamedValues values;  ///< views of the caller's memory
  int64_t rows = 0;    ///< of the first var that is split; 0 if there is none
};

/// How feeds are divided.
struct SplitSettings {
  int devices = 1;
  SplitRule rule = SplitRule::kFloor;
  bool training = false;          ///< too few rows are an error
  llvm::ArrayRef<int64_t> given;  ///< rows for each device; may be empty
};

/// Splits every fed tensor. A persistable var with one row is given to every device whole; with as
/// many rows as devices, each device gets one.
/// Errors: kInvalidArgument naming the var, for fewer rows than devices in training, for values
/// that are not tensors.
StatusOr<std::vector<DeviceFeed>> split_feeds(const Program& program, const NamedValues& feeds,
                                              const SplitSettings& settings);

/// Views of the feeds given for each device.
/// Errors: kInvalidArgument unless each device has one feed, which is not empty (in inference there
/// may be fewer feeds), and for tensors without rows.
StatusOr<std::vector<DeviceFeed>> list_feeds(const Program& program,
                                             llvm::ArrayRef<NamedValues> feeds,
                                             const SplitSettings& settings);

/// Splits the feed of a device into parts of nearly equal numbers of rows. Errors: kInvalidArgument
/// for fewer rows than parts.
StatusOr<std::vector<DeviceFeed>> split_micro_batches(const Program& program, DeviceFeed feed,
                                                      int parts);

}  // namespace millrace::executor
