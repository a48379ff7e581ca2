#include "ops/metric/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_metric(OpRegistry& registry) {
  registry.add(accuracy());
  registry.add(auc());
  registry.add(detection_map());
  registry.add(mean_iou());
  registry.add(precision_recall());
  registry.add(positive_negative_pair());
}

}  // namespace millrace::ops
