#pragma once

#include "executor/steps/step.h"
#include "framework/base/status.h"

namespace millrace::executor {

/// Is notified of every op that runs, including those of sub-blocks, in order. For checks and
/// traces; a run without an observer has no overhead.
class StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() = default;

  virtual void before(const Step& /*step*/) {}
  /// The op has run; table holds its outputs. An error ends the run with the op's location.
  virtual Status after(const Step& step, Value* const* table) = 0;
};

}  // namespace millrace::executor
