#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/log.h"
#include "framework/base/status.h"
#include "ps/client/client.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::ps {

/// Fetches parameters, optimizer state and the state of learning rate schedules from the servers,
/// joins slices, and returns values by original name. Values that several servers hold identically
/// are taken from the first server. Does not wait for barriers: call it when all trainers are done.
/// \param log  is warned of values that differ although they should be the same: a server moves the
///             powers of beta of a sparse table only in steps in which it has rows
///
/// Errors: those of the calls; kInvalidData where the values of the servers do not make up a
/// variable of the overview.
StatusOr<std::map<std::string, Value>> gather_vars(Client& client,
                                                   const transpiler::SlicesFile& slices,
                                                   const LogSink& log);

/// The same for some vars of the overview; must not include the distributed table.
StatusOr<std::map<std::string, Value>> gather_vars(Client& client,
                                                   const transpiler::SlicesFile& slices,
                                                   const std::vector<std::string>& names,
                                                   const LogSink& log);

/// Offset of a slice of optimizer state that the overview lists as whole on every server although
/// its parameter is split: the offset of the parameter's slice on that server. (The original's
/// transpiler lists MeanGrad of rmsprop this way.) The parameter is DistributedVar::param; where
/// that is not known, the one whose name begins that of the state.
///
/// \param state     entry of the state on the server
/// \param elements  number of elements of the slice
/// \returns offset in elements; negative if no parameter is split that way
int64_t offset_beside_param(llvm::ArrayRef<transpiler::OriginSlices> origins,
                            const transpiler::DistributedVar& state, int64_t elements);

/// The slice that a server holds of such state: that of its parameter. If the parameter is not
/// known, that of the vars with its shape, if all agree.
/// \returns null if no such var is split on that server, so that the state is whole there
/// Errors: kInvalidData naming the state and two slices that differ.
StatusOr<const transpiler::DistributedVar*> slice_beside_param(
    llvm::ArrayRef<transpiler::OriginSlices> origins, const transpiler::DistributedVar& state);

/// Fetches the state of learning rate schedules from one server: it is the same on all. Errors:
/// those of the calls.
StatusOr<std::map<std::string, Value>> gather_schedule(Client& client,
                                                       const transpiler::SlicesFile& slices);

/// The distributed table of a job, joined from all servers into one dense tensor. Errors: as above.
StatusOr<Value> gather_table(Client& client, const transpiler::SlicesFile& slices);

}  // namespace millrace::ps
