#pragma once

#include <cstddef>
#include <string>

#include "tests/explorer/model.h"

/// Events of the trainers of the model.
namespace millrace::explorer {

/// True if a trainer has a call to a server that was not answered.
bool has_call(const TrainerState& trainer, size_t server);
/// That call.
Message message_of(const TrainerState& trainer, int id, size_t server);
/// The trainer learns that the connection of the call has ended.
void lose(TrainerState& trainer, size_t server);
/// The call arrives at the server and is answered; one that waits remains. \param loses_answer  the
/// trainer learns only that the connection has ended
bool call(const Job& job, State& state, int id, size_t server, bool loses_answer);
/// The next call of a trainer that agrees with all servers on its step.
bool settle(const Job& job, State& state, int id);
/// The next call of a trainer that agrees with all servers on the last step of another one.
bool ask_loss(const Job& job, State& state, int id, size_t from);
/// A trainer ends with an error.
void end_trainer(const Job& job, State& state, int id, const std::string& why);

}  // namespace millrace::explorer
