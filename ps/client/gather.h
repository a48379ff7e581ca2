#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/client/client.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::ps {

/// Parameters, optimizer state and what schedules keep from the servers, joined, by original name.
/// What several servers hold alike is taken from the first. Asks in any phase: call it when all
/// trainers are done.
///
/// Errors: those of the calls; kInvalidData where what the servers hold does not make up a variable
/// of the overview.
StatusOr<std::map<std::string, Value>> gather_vars(Client& client,
                                                   const transpiler::SlicesFile& slices);

/// The same of some vars of the overview only; the distributed table is none of them.
StatusOr<std::map<std::string, Value>> gather_vars(Client& client,
                                                   const transpiler::SlicesFile& slices,
                                                   const std::vector<std::string>& names);

/// Where a piece of optimizer state begins that the overview lists whole on every server though its
/// parameter is cut: where the parameter's piece of that server does. (The original's transpiler
/// lists MeanGrad of rmsprop so.)
///
/// \param state     the whole variable, which is called as its parameter with more behind
/// \param elements  of the piece
/// \returns elements from the start; negative if no parameter is cut like that
int64_t offset_beside_param(llvm::ArrayRef<transpiler::OriginSlices> origins,
                            const transpiler::VarFacts& state, const std::string& endpoint,
                            int64_t elements);

/// What the servers' schedules keep, from one of them: all count alike.
/// Errors: those of the calls.
StatusOr<std::map<std::string, Value>> gather_schedule(Client& client,
                                                       const transpiler::SlicesFile& slices);

/// The distributed table of a job, dense, from all servers. Errors: as above.
StatusOr<Value> gather_table(Client& client, const transpiler::SlicesFile& slices);

}  // namespace millrace::ps
