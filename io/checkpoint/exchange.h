#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/gather.h"
#include "io/checkpoint/json.h"

namespace millrace::io {

/// Gather::all_gather() of an outcome: fails on all ranks if it failed on one.
///
/// \param mine     outcome of this rank
/// \param payload  JSON text for the others; empty counts as null
/// \returns the payloads by rank
/// Errors: `mine`; the error of the lowest rank that failed, with a note that names the rank; those
/// of all_gather().
StatusOr<std::vector<JsonValue>> exchange(Gather& gather, Status mine, std::string payload);

}  // namespace millrace::io
