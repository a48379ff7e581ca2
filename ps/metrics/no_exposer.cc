#include "framework/base/errors.h"
#include "ps/metrics/exposer.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::start(int port,
                                                                const Metrics& /*metrics*/) {
  return Unimplemented("metrics at port {}: this build has no prometheus-cpp", port)
      .with_hint("install prometheus-cpp-dev and build again");
}

}  // namespace millrace::ps
