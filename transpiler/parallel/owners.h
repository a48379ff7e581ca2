#pragma once

#include <map>
#include <string>
#include <vector>

#include "transpiler/parallel/gradients.h"

namespace millrace::transpiler {

/// A var that one device writes and others read.
struct SentVar {
  std::string name;
  int owner = 0;
  Op* before = nullptr;  ///< the first op that reads it in the same step; null: it is first read in
                         ///< the next step
};

/// Which ops run on one device only.
struct Ownership {
  /// True if some op needs gradients of several owners (such as a norm over all of them). Then
  /// every device gets every sum, and only the updates themselves are divided.
  bool needs_all = false;
  /// The device that alone runs an op; ops that are not listed run on all devices.
  std::map<Op*, int> owner_of;
  /// What owners send to the others, in the order of first use.
  std::vector<SentVar> sent;
};

/// Assigns each gradient, in program order, to the device with the fewest elements so far (the
/// first of equals), and each optimizer op to the device of its gradient.
/// Source: spec/parallel_executor.md section 4.3.
Ownership divide_updates(Program& program, std::vector<ParallelGrad>& grads, int devices);

/// True for ops that exchange gradients and parameters with parameter servers, and for those that
/// split and join what they send and receive. Only one device of a process runs them. Ops of the
/// forward part that fetch rows for their own device are not included.
bool is_server_op(const Op& op);

/// Assigns all server ops to device 0, which sends what they receive to the others. False if there
/// are none. Source: spec/parallel_executor.md section 4.7.
bool give_server_ops(Program& program, Ownership& result);

}  // namespace millrace::transpiler
