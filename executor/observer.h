#pragma once

#include "executor/step.h"
#include "framework/base/status.h"

namespace millrace::executor {

/// Is told of every op that runs, those of sub-blocks included, in order. For checks and traces;
/// without one a run pays nothing.
class StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() = default;

  virtual void before(const Step& /*step*/) {}
  /// The op has run; table holds its outputs. An error ends the run with the op's place.
  virtual Status after(const Step& step, Value* const* table) = 0;
};

}  // namespace millrace::executor
