#pragma once

#include <memory>
#include <string>

#include "ps/transport/transport.h"

namespace millrace::ps {

/// Transport within one process: endpoints are names in this object, and a call runs the handler in
/// the caller's thread. Values are copied once, from var to var.
///
/// Listeners and channels may outlive the object. Destroying a listener waits for the calls in its
/// handler, which must end them; later calls wait until their deadline for another listener of that
/// name. Thread-safety: all functions may be called from any thread.
class InprocTransport final : public Transport {
 public:
  InprocTransport();
  ~InprocTransport() override;

  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override;
  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override;
  /// Ends calls that wait for a listener, and all later calls, with an error: no listener will
  /// come. Calls that are in a handler continue.
  void close();

 private:
  class Hub;
  class InprocChannel;
  class InprocListener;

  std::shared_ptr<Hub> hub_;
};

}  // namespace millrace::ps
