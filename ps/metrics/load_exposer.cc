#include "framework/base/module.h"
#include "ps/metrics/exposer.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::start(int port, const Metrics& metrics) {
  MILLRACE_ASSIGN_OR_RETURN(const ExposerModule* const module,
                            load_functions<ExposerModule>("http"));
  return module->start(port, metrics);
}

}  // namespace millrace::ps
