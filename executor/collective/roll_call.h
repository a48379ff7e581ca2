#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/store.h"

namespace millrace::executor {

/// Finds out which ranks are missing after a failure. A rank that notices a failure writes its name
/// into the store and waits for a short time for the others to do the same; those that do not are
/// missing. The rank that serves the store returns when all others have read the result, or when
/// the time is over.
///
/// \param key     of this group in the store
/// \param ranks   of its members, in the group of all ranks of the job
/// \param own     position of this rank among them
/// \param why     the failure; its text becomes a note
/// \param wait_ms how long to wait for the others
/// \returns kDistributed naming the ranks that did not respond, or `why` if all did
Status call_roll(Store& store, const std::string& key, const std::vector<int>& ranks, int own,
                 int64_t wait_ms, const Status& why);

}  // namespace millrace::executor
