#include "kernels/cpu/metric/metric.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_metric_kernels(KernelRegistry& registry) {
  add_accuracy_kernels(registry);
  add_auc_kernel(registry);
  add_detection_map_kernel(registry);
  add_precision_recall_kernel(registry);
  add_positive_negative_pair_kernel(registry);
}

}  // namespace millrace::kernels
