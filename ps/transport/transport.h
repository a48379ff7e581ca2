#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/transport/message.h"

namespace millrace::ps {

using Deadline = std::chrono::steady_clock::time_point;

/// Server side: answers calls. Called by several threads at once, one call each; a call may wait
/// (barriers), but not past its deadline.
class Handler {
 public:
  Handler() = default;
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;
  virtual ~Handler() = default;

  /// Errors go to the caller with code, message, notes and hint. kDistributed where the deadline
  /// passes; what the call waits for belongs into the message.
  virtual Status handle(const Request& request, Deadline deadline, ReplySink& reply) = 0;
};

/// A caller's way to one server. Thread-safety: any number of calls at once.
class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;

  [[nodiscard]] virtual const std::string& endpoint() const = 0;
  /// Sends a request and waits for the answer. Errors: those of the server, with a note that names
  /// its endpoint; kDistributed if it cannot be reached or does not answer by the deadline. Does
  /// not repeat a call that may have arrived: who calls does that, with the same sequence number.
  virtual Status call(const Request& request, Deadline deadline, Reply& reply) = 0;
  /// True once no call can be answered any more, so that nobody need repeat one.
  [[nodiscard]] virtual bool closed() const { return false; }
};

/// A server's listening place; ends with the object. Calls that are under way are ended with an
/// error first.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  /// Where it listens: the endpoint asked for, with the port that it got where that was 0.
  [[nodiscard]] virtual const std::string& endpoint() const = 0;
};

/// How processes, or parts of one process, reach each other.
///
/// In-process (ps/transport/inproc.h): endpoints are names in one Transport object. gRPC
/// (ps/transport/grpc.h): endpoints are host:port.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// Returns at once; the server may come up later, calls wait for it until their deadline.
  /// Errors: kInvalidArgument for an endpoint that cannot be one.
  virtual StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) = 0;
  /// \param handler  must outlive the listener
  /// Errors: kDistributed if the port is in use, kInvalidArgument for a bad endpoint or one that
  /// the rules of safety forbid.
  virtual StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                                     Handler& handler) = 0;
};

}  // namespace millrace::ps
