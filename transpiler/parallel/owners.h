#pragma once

#include <map>
#include <string>
#include <vector>

#include "transpiler/parallel/gradients.h"

namespace millrace::transpiler {

/// A var that one device has written and others read.
struct SentVar {
  std::string name;
  int owner = 0;
  Op* before = nullptr;  ///< the first op that reads it in the same step; null: the next step does
};

/// Who does what alone.
struct Ownership {
  /// True if some op needs gradients of several owners (a norm over all of them): then every device
  /// gets every sum, and only the updates themselves are divided.
  bool needs_all = false;
  /// Device that runs an op alone; ops that are not here run on all devices.
  std::map<Op*, int> owner_of;
  /// What owners send to the others, in the order in which it is needed.
  std::vector<SentVar> sent;
};

/// Gives each gradient to the device with the fewest elements so far (of equals, the first), in
/// program order, and each optimizer op to the device of its gradient.
/// Source: spec/parallel_executor.md section 4.3.
Ownership divide_updates(Program& program, std::vector<ParallelGrad>& grads, int devices);

/// True for ops that speak with parameter servers about gradients and parameters, and for those
/// that cut and join what they send and receive. A process has one voice: rows that ops of the
/// forward part fetch for themselves are not meant.
bool is_server_op(const Op& op);

/// Gives all server ops to device 0, which sends what they receive to the others. False if there
/// are none. Source: spec/parallel_executor.md section 4.7.
bool give_server_ops(Program& program, Ownership& result);

}  // namespace millrace::transpiler
