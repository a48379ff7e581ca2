#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/gather.h"
#include "io/json.h"

namespace millrace::io {

/// Gather::all_gather() of the outcomes of all ranks. Fails on all ranks if any rank failed.
///
/// \param mine  outcome of this rank
/// \param payload  JSON text for the other ranks; empty counts as null
/// \returns the payloads by rank
/// Errors: `mine`; the error of the lowest rank that failed, with a note that names the rank; those
/// of all_gather().
StatusOr<std::vector<JsonValue>> exchange(Gather& gather, Status mine, std::string payload);

/// Converts an error to text, and back. An error that came from a rank says so in a note.
std::string failure_text(const Status& status);
Status failure_from(std::string_view text, size_t rank);

/// The error for a rank whose message is not in the expected form.
Status sent_malformed(size_t rank);
/// One item of a rank's list.
struct RankItem {
  size_t rank = 0;
  const JsonValue* item = nullptr;
};
/// The items of the lists that exchange() returned, in the order of ranks; they point into `all`.
/// Errors: sent_malformed() for a payload that is no list.
StatusOr<std::vector<RankItem>> items_of_ranks(const std::vector<JsonValue>& all);
/// exchange() of lists of non-negative integers.
StatusOr<std::vector<std::vector<int64_t>>> exchange_numbers(Gather& gather, Status mine,
                                                             const std::vector<int64_t>& numbers);
/// "[1, 2]", the text form of such lists.
std::string numbers_text(const std::vector<int64_t>& numbers);

}  // namespace millrace::io
