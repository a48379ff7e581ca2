#pragma once

#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "ps/server/server_core.h"

namespace millrace::ps {

/// Name of the record in snapshots of servers.
inline constexpr const char* kIdentityRecord = "identity";

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

}  // namespace millrace::ps
