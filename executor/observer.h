#pragma once

#include "executor/compiled_ops/compiled_op.h"
#include "framework/base/status.h"

namespace millrace::executor {

/// Is notified of every op that runs, including those of sub-blocks, in order. For checks and
/// traces; a run without an observer has no overhead.
class OpObserver {
 public:
  OpObserver() = default;
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;
  virtual ~OpObserver() = default;

  virtual void before(const CompiledOp& /*compiled*/) {}
  /// The op has run; table holds its outputs. An error ends the run with the op's location.
  virtual Status after(const CompiledOp& compiled, Value* const* table) = 0;
};

}  // namespace millrace::executor
