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

/// An error as text, and back; what comes from a rank says so in a note.
std::string failure_text(const Status& status);
Status failure_from(std::string_view text, size_t rank);

/// The error of a rank that has sent something else than was agreed on.
Status sent_malformed(size_t rank);
/// exchange() of lists of whole numbers that are not negative.
StatusOr<std::vector<std::vector<int64_t>>> exchange_numbers(Gather& gather, Status mine,
                                                             const std::vector<int64_t>& numbers);
/// "[1, 2]", as ranks send each other such lists.
std::string numbers_text(const std::vector<int64_t>& numbers);

}  // namespace millrace::io
