#pragma once

#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "ps/server/server_core.h"

namespace millrace::ps {

/// Name of the record in snapshots of servers.
inline constexpr const char* kIdentityRecord = "identity";

/// Name of the record in snapshots that were made for a job and have its values only: facts about
/// the server for which they were made (ServerOptions::plan), one per line.
inline constexpr const char* kLayoutRecord = "layout";

/// What a snapshot must have in common with the server that loads it, one fact per line: the
/// name of the job first (if it has one), then, sorted, the way updates are applied, the ops of the
/// blocks that update, with attributes, the number of the server, the slices that it holds of which
/// vars (ServerOptions::plan), the typed tables, the number of trainers, and the persistable vars
/// of the program with kind, dtype and dims. Endpoints are left out: a job may move.
std::string identity_of(const ServerCore& core);

/// Compares the record of a snapshot with identity_of() the server. A job without a name fits any,
/// and so does a server without ServerOptions::plan.
/// Errors: kInvalidData with the first lines that differ.
Status check_identity(std::string_view stored, std::string_view own);

/// The facts about the server in a record kIdentityRecord (ServerOptions::plan), one per line;
/// empty where it had none.
std::string layout_in(std::string_view identity);

/// Compares a record kLayoutRecord with the facts of the server that loads the snapshot. A server
/// without facts fits any. Errors: kInvalidData with the first fact that differs.
Status check_layout(std::string_view stored, const PlanFacts& own);

}  // namespace millrace::ps
