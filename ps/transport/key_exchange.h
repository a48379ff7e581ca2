#pragma once

#include <string>

#include "framework/base/status.h"
#include "io/job_key.h"
#include "ps/transport/socket.h"

/// The first bytes of a TCP connection between processes that have the key of their job, before any
/// message. Each side proves that it has the key (io::JobKey):
///   caller: kKeyMark, nonce -> server: kKeyMark, nonce, proof -> caller: proof
/// Waits are bounded by the deadline of the socket. Thread-safety: that of the socket.
namespace millrace::ps {

/// First bytes of the caller and of the server; the last one changes with the protocol.
inline constexpr std::string_view kKeyMark = "MLRK1";

/// The caller's side. Errors: kInvalidArgument for a server without the key, or with another one;
/// kDistributed if the connection breaks.
Status exchange_as_caller(Socket& socket, const io::JobKey& key, const std::string& endpoint);
/// The server's side. Errors: kInvalidArgument with what the caller lacks; kDistributed if the
/// connection breaks.
Status exchange_as_server(Socket& socket, const io::JobKey& key);
/// The error of a server with a key for callers that begin with something else.
Status lacks_key();

}  // namespace millrace::ps
