#include "framework/base/errors.h"
#include "ps/metrics/exposer.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::start(int port,
                                                                const Metrics& /*metrics*/) {
  return Unimplemented("metrics at port {}: this build has no cpp-httplib", port)
      .with_hint("install libcpp-httplib-dev and build again");
}

}  // namespace millrace::ps
