#pragma once

#include "executor/collective/trainer_link.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// Gives every process the persistable dense values of process 0, in alphabetical order of names;
/// vars that are divided over processes keep their values. Source: spec/parallel_executor.md
/// section 5. Errors: kInvalidData if the processes have different vars or shapes; those of the
/// link.
Status share_start_values(const Program& program, Scope& scope, TrainerLink& link);

}  // namespace millrace::executor
