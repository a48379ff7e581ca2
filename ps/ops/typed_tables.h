#pragma once

#include <memory>

#include "executor/compiled_ops/control.h"
#include "ps/client/trainer_link.h"

namespace millrace::ps {

/// distributed_lookup_table of a program that names a typed table by its number.
/// Errors: kInvalidProgram naming the op; kNotFound for a table that the job does not have.
StatusOr<executor::Control> make_typed_lookup(const std::shared_ptr<TrainerLink>& link,
                                              const kernels::KernelSetup& setup);

}  // namespace millrace::ps
