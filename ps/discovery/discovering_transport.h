#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/discovery/directory.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Where a server listens when that differs from the endpoint in its program.
struct ServingPlace {
  std::string listen_at;  ///< host:port; empty: the endpoint that the program names
  /// Address announced to others, host or host:port; empty: the address where it listens.
  std::string advertise;
};

struct DiscoveryOptions {
  ServingPlace place;
  /// How long a server that was reachable may be absent before a call to it fails; also how long to
  /// wait for a name that another process has.
  std::chrono::milliseconds patience{30000};
  /// Whether a process listens at an address; empty: a TCP connection is opened and closed.
  std::function<Status(const std::string& address, Deadline deadline)> probe = {};
};

/// Wraps another transport. Endpoints, as in the programs, become names; a directory maps a name to
/// the current address of its server, so a server may restart at another address while its trainers
/// run.
/// \param directory  shared by the transport and all objects that it creates
/// Thread-safety: the transport and all objects that it creates are thread-safe.
std::shared_ptr<Transport> make_discovering_transport(std::shared_ptr<Transport> transport,
                                                      std::shared_ptr<Directory> directory,
                                                      const DiscoveryOptions& options);

}  // namespace millrace::ps
