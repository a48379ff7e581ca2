#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/metric, one function per file.
void add_accuracy_kernels(KernelRegistry& registry);
void add_auc_kernel(KernelRegistry& registry);
void add_detection_map_kernel(KernelRegistry& registry);
void add_precision_recall_kernel(KernelRegistry& registry);
void add_positive_negative_pair_kernel(KernelRegistry& registry);

}  // namespace millrace::kernels
