#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/discovery/directory.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Where a server stands although its program names another place.
struct ServingPlace {
  std::string listen_at;  ///< host:port; empty: the endpoint that the program names
  /// What others are told, host or host:port; empty: where it listens.
  std::string advertise;
};

struct DiscoveryOptions {
  ServingPlace place;
  /// How long a server that was there may be absent before a call to it fails; also how long a
  /// name that somebody else has is waited for.
  std::chrono::milliseconds patience{30000};
};

/// Another transport, whose endpoints are names: those in the programs. A directory tells where the
/// server of a name is at present, so it may come back at another address while its trainers run.
/// \param directory  outlives the transport and all it makes through shared ownership
/// Thread-safety: the transport and all it makes.
std::shared_ptr<Transport> make_discovering_transport(std::shared_ptr<Transport> transport,
                                                      std::shared_ptr<Directory> directory,
                                                      const DiscoveryOptions& options);

}  // namespace millrace::ps
