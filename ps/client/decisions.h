#pragma once

#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "ps/protocol/answers.h"

/// What a trainer of synchronous servers decides from their responses (docs/protocol.md). All
/// functions are pure, so tests/explorer can try them in every order of events.
namespace millrace::ps {

/// How a trainer continues with a server that has begun another run.
enum class AfterRestart {
  kRepeat,      ///< it repeats the call whose response it lacks
  kWasSent,     ///< the send barrier whose response it lacks was carried out
  kSendAgain,   ///< the server lacks its last gradients: it sends them again, then repeats the call
  kMustSettle,  ///< the server is at another step: all servers have to agree on one
};

/// \param answer  to the hello to the new run
/// \param sent  send barriers that the server has answered
/// \param has_last_sent  the trainer still has the gradients of the last of them
AfterRestart after_restart(const protocol::HelloAnswer& answer, int64_t sent, bool has_last_sent);

/// Where a trainer continues, from the answers of all servers to its hellos.
struct Settling {
  int64_t step = 0;
  size_t reason = 0;           ///< index of the server that is at the oldest step
  bool servers_agree = false;  ///< all expect the trainer at the step: no go-to is needed
  bool joins = false;          ///< it replaces another process: check has_lost_steps() first
  int64_t newest = 0;          ///< steps applied by the server that is ahead
};

/// \param answers  at least one
/// \param again  the trainer has been at another step: it sends go-to in any case
/// \param ahead  how many steps later a trainer begins that replaces another one
Settling plan_settling(llvm::ArrayRef<protocol::HelloAnswer> answers, bool again, int64_t ahead);

/// Whether a server lacks steps that another one has applied, so that a trainer must not join
/// before others have made all go back. \param applied  by the server, asked after the answer with
/// `newest`
inline bool has_lost_steps(int64_t applied, int64_t newest) {
  return applied + 1 < newest;  // servers apply a step only when all have applied the one before
}

/// The number of steps with a lost trainer, from the answers of all servers: the greatest, of those
/// that are decided if there are any. An update that one server has applied is applied by all.
int64_t last_step_of(llvm::ArrayRef<protocol::LossAnswer> answers);

}  // namespace millrace::ps
