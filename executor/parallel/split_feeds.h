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

/// Rows for each device.
///
/// \param rows   of the whole tensor
/// \param given  rows for each device; empty: the rule says
/// \returns one entry a device; 0 only if there are fewer rows than devices
/// Errors: kInvalidArgument if the given rows do not add up.
StatusOr<std::vector<int64_t>> divide_rows(int64_t rows, int devices, SplitRule rule,
                                           llvm::ArrayRef<int64_t> given);

/// Rows of a tensor that count for splitting: sequences of its outermost LoD level, else dim 0; 1
/// for rank 0.
int64_t splittable_rows(const Tensor& tensor);

/// A view of rows [begin, end) as splittable_rows() counts them, with a LoD of its own.
Tensor slice_rows(const Tensor& tensor, int64_t begin, int64_t end);

/// What one device is fed in one run of its ops.
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

/// Cuts every fed tensor. A persistable var of one row goes to every device, of as many rows as
/// devices one to each.
/// Errors: kInvalidArgument naming the var, for fewer rows than devices in training, for values
/// that are no tensors.
StatusOr<std::vector<DeviceFeed>> split_feeds(const Program& program, const NamedValues& feeds,
                                              const SplitSettings& settings);

/// Views of what each device is given.
/// Errors: kInvalidArgument unless there is one feed, not empty, a device (in inference: at most),
/// and for tensors without rows.
StatusOr<std::vector<DeviceFeed>> list_feeds(const Program& program,
                                             llvm::ArrayRef<NamedValues> feeds,
                                             const SplitSettings& settings);

/// Cuts the feed of a device into parts of about as many rows. Errors: kInvalidArgument for fewer
/// rows than parts.
StatusOr<std::vector<DeviceFeed>> split_micro_batches(const Program& program, DeviceFeed feed,
                                                      int parts);

}  // namespace millrace::executor
