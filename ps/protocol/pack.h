#pragma once

#include "framework/base/status.h"
#include "ps/protocol/messages.h"
#include "ps/transport/message.h"

/// Packs typed messages into the envelope that transports carry, and unpacks them: the only place
/// that knows which field of the envelope holds what. The caller, the epoch, the step and the
/// sequence number are set by the sender of the envelope, except that Hello sets the sequence.
///
/// Thread-safety: all functions are pure.
namespace millrace::ps::protocol {

Request pack(const Hello& message);
Request pack(Send message);
Request pack(Get message);
Request pack(GetNow message);
Request pack(Prefetch message);
Request pack(SendBarrier message);
Request pack(FetchBarrier message);
Request pack(const Complete& message);
Request pack(Checkpoint message);
Request pack(Count message);
Request pack(Run message);
Request pack(Pull message);
Request pack(Push message);
Request pack(const Barrier& message);
Request pack(const Watch& message);
Request pack(const Stop& message);
Request pack(const GoTo& message);
Request pack(const Loss& message);

/// Reads the message of an envelope, whose method must be Message::kMethod. Defined for all
/// messages with a method. Errors: kInvalidArgument naming the method and the field that is missing
/// or out of range.
template <typename Message>
StatusOr<Message> unpack(const Request& request);

/// True for the call after which a server forgets the trainer: Complete without `stays`.
bool is_last_call(const Request& request);

/// Sets `sent_everywhere` of Get, FetchBarrier and Complete; the sender of the envelope knows it.
void set_sent_everywhere(Request& request, bool sent);

/// True if a server must carry out a repeat of the call only once, so that the call needs a
/// sequence number.
bool needs_sequence(const Request& request);

}  // namespace millrace::ps::protocol
