#pragma once

#include <memory>
#include <string>

#include "ps/transport/transport.h"

namespace millrace::ps {

/// Transport within one process: endpoints are names in this object, and a call runs the handler in
/// the caller's thread. Values are copied once, from var to var.
///
/// Listeners and channels may outlive the object. A listener's end waits for the calls that are
/// inside of its handler, which has to end them; later calls wait for another listener of that name
/// until their deadline. Thread-safety: everything may be called from any thread.
class InprocTransport final : public Transport {
 public:
  InprocTransport();
  ~InprocTransport() override;

  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override;
  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override;
  /// Ends calls that wait for a listener, and later ones, with an error: what is to answer them
  /// will not come. Calls inside of a handler go on.
  void close();

 private:
  class Hub;
  class InprocChannel;
  class InprocListener;

  std::shared_ptr<Hub> hub_;
};

}  // namespace millrace::ps
