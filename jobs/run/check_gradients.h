#pragma once

#include <memory>

#include "executor/gradients/check_gradients.h"
#include "executor/runtime.h"
#include "framework/base/status.h"
#include "jobs/data/feed_options.h"
#include "jobs/run/session.h"

namespace millrace::jobs {

/// Opens a session and compares the gradients of its first step with central differences.
/// Errors: those of open_session(), of the feeds and of executor::check_gradients(), with the
/// program's file.
StatusOr<executor::GradientReport> check_gradients(
    const SessionOptions& session, const FeedOptions& feed,
    const executor::GradientCheckOptions& options,
    const std::shared_ptr<const executor::Runtime>& runtime);

}  // namespace millrace::jobs
