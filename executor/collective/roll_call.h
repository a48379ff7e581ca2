#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/store.h"

namespace millrace::executor {

/// Who is there: a rank that notices a failure writes its name into the store, waits a moment for
/// the others to do the same, and so learns who does not. The rank that serves the store returns
/// when all others have learnt it, too, or the time is over.
///
/// \param key     of this group in the store
/// \param ranks   of its members, in the group that all ranks of the job make
/// \param own     place of this rank among them
/// \param why     what has failed; its text becomes a note
/// \returns kDistributed naming the ranks that did not answer, or why itself if all did
Status call_roll(Store& store, const std::string& key, const std::vector<int>& ranks, int own,
                 int64_t wait_ms, const Status& why);

}  // namespace millrace::executor
