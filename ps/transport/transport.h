#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/transport/message.h"

namespace millrace::ps {

using Deadline = std::chrono::steady_clock::time_point;

/// Server side: handles calls. Called concurrently by several threads, one call each. A call may
/// wait (barriers), but not beyond its deadline.
class Handler {
 public:
  Handler() = default;
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;
  virtual ~Handler() = default;

  /// Errors are returned to the caller with code, message, notes and hint. If the deadline passes,
  /// the error must be kDistributed and say what the call waited for.
  virtual Status handle(const Request& request, Deadline deadline, ReplySink& reply) = 0;

  /// True if the call comes from a peer that takes part in the job. Asked as soon as the envelope
  /// of a call has arrived (a request without text and items); the calls and connections of other
  /// peers have limits of their own. Errors refuse the call. Without an implementation, every peer
  /// is known.
  [[nodiscard]] virtual StatusOr<bool> knows(const Request& /*envelope*/) const { return true; }
  /// A call of this peer has arrived and still waits, not for the server: the peer is not silent.
  virtual void heard(const Request& /*envelope*/) {}
  /// The term of the server (ps/transport/epoch.h); 0: it has none. A transport that orders servers
  /// by a directory sets a higher one before any call is handled.
  [[nodiscard]] virtual uint64_t term() const { return 0; }
  /// Errors: kIo where the term cannot be recorded; then the server must not serve.
  virtual Status begin_term(uint64_t /*term*/) { return Ok(); }
  /// True once the server has finished its job, so that no other process must begin it again.
  [[nodiscard]] virtual bool has_finished() const { return false; }
  /// Ends the server, because another one serves in its place. Thread-safety: any thread.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriding functions keep it
  virtual void end(Status /*why*/) {}
};

/// A caller's connection to one server. Thread-safety: any number of concurrent calls.
class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;

  [[nodiscard]] virtual const std::string& endpoint() const = 0;
  /// Sends a request and waits for the response. Errors: those of the server, with a note that
  /// names its endpoint; kDistributed if the server cannot be reached or does not respond by the
  /// deadline. Does not repeat a call that may have arrived: the caller has to do that, with the
  /// same sequence number.
  virtual Status call(const Request& request, Deadline deadline, Reply& reply) = 0;
  /// True once no call can be answered any more, so that repeats are useless.
  [[nodiscard]] virtual bool closed() const { return false; }
  /// Ends the calls in progress with kDistributed, as if their connections were lost: the server
  /// was replaced by another one while it did not run, and may never respond. Within one process,
  /// where no server stops alone, this does nothing.
  virtual void interrupt() {}
};

/// Listens on an endpoint as long as the object exists. Its destructor first ends running calls
/// with an error.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  /// The endpoint on which it listens: the requested one, with the chosen port if that was 0.
  [[nodiscard]] virtual const std::string& endpoint() const = 0;
};

/// Connects processes, or components of one process.
///
/// In-process (ps/transport/inproc.h): endpoints are names in one Transport object. gRPC
/// (ps/transport/grpc.h): endpoints are host:port.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// Returns immediately; the server may start later, and calls wait for it until their deadline.
  /// Errors: kInvalidArgument for a malformed endpoint.
  virtual StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) = 0;
  /// \param handler  must outlive the listener
  /// Errors: kDistributed if the port is in use; kInvalidArgument for a malformed endpoint, or for
  /// one that would be insecure (check_may_listen()).
  virtual StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                                     Handler& handler) = 0;
};

}  // namespace millrace::ps
