#pragma once

#include <cstdint>

#include "executor/collective/collective_group.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "jobs/data/feed_options.h"
#include "jobs/data/feeder.h"

namespace millrace::jobs {

/// The lowest and the highest number of steps of all ranks.
struct StepRange {
  int64_t least = 0;
  int64_t most = 0;
};
/// Call it on all ranks. \param own  number of steps of this rank  Errors: kDistributed.
StatusOr<StepRange> steps_of_ranks(int64_t own, executor::CollectiveGroup& ranks);

/// Ranks that run steps together need the same number of steps. Compares the numbers of all ranks
/// that have divided their examples; call it on all ranks before the first step. With
/// FeedOptions::drop_last every rank ends with the one that has the fewest steps.
/// Errors: kUsage if the files are read during training, so that the numbers are not known;
/// kInvalidData if they differ; kDistributed.
Status agree_on_steps(const FeedOptions& options, executor::CollectiveGroup& ranks, Feeder& feeder,
                      const LogSink& log);

}  // namespace millrace::jobs
