#pragma once

#include "executor/executor.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "jobs/data/feed_options.h"

namespace millrace::jobs {

/// The values that are fed in every step: "in.npz" with arrays by var name, "x=x.npy", or generated
/// ones (made_feed.h), with the LoD of FeedOptions::lods.
/// Errors: kInvalidData, kNotFound, kUsage.
StatusOr<executor::NamedValues> read_feeds(const FeedOptions& options, const Program& program);

/// Converts float32 values to float64; others are unchanged.
Status widen_values(executor::NamedValues& values);

}  // namespace millrace::jobs
