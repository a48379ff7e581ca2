#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Each function adds the ops of the file it is named after, including gradients.
void add_dropout(KernelRegistry& registry);
void add_fill(KernelRegistry& registry);
void add_integers(KernelRegistry& registry);
void add_normal(KernelRegistry& registry);
void add_number_sequences(KernelRegistry& registry);
void add_uniform(KernelRegistry& registry);
void add_samples(KernelRegistry& registry);

}  // namespace millrace::kernels
