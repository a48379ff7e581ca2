#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Families of this folder, one a file.
void add_fake_quant_ops(OpRegistry& registry);
void add_linear_quant_ops(OpRegistry& registry);
void add_dictionary_ops(OpRegistry& registry);

}  // namespace millrace::ops
