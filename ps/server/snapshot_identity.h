#pragma once

#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "ps/server/server_core.h"

namespace millrace::ps {

/// Name of the record in snapshots of servers.
inline constexpr const char* kIdentityRecord = "identity";

/// What a snapshot must have in common with the server that loads it, one fact per line: the
/// name of the job first (if it has one), then, sorted, the way updates are applied, the
/// persistable vars of the program with kind, dtype and dims, and the typed tables.
std::string identity_of(const ServerCore& core);

/// Compares the record of a snapshot with identity_of() the server. A job without a name fits any.
/// Errors: kInvalidData with the first lines that differ.
Status check_identity(std::string_view stored, std::string_view own);

}  // namespace millrace::ps
