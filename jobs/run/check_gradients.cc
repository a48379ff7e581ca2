#include "jobs/run/check_gradients.h"

#include <utility>

#include "jobs/data/feeder.h"

namespace millrace::jobs {

StatusOr<executor::GradientReport> check_gradients(
    const SessionOptions& session, const FeedOptions& feed,
    const executor::GradientCheckOptions& options,
    const std::shared_ptr<const executor::Runtime>& runtime) {
  MILLRACE_ASSIGN_OR_RETURN(const Session opened, open_session(session, runtime));
  MILLRACE_ASSIGN_OR_RETURN(Feeder feeder, Feeder::open(feed, opened.program()));
  MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues* const feeds, feeder.feeds(0));
  const executor::NamedValues none;
  StatusOr<executor::GradientReport> report = executor::check_gradients(
      runtime, opened.program(), *opened.scope, feeds == nullptr ? none : *feeds, options);
  if (!report.ok()) return std::move(report).status().in_file(opened.name);
  return report;
}

}  // namespace millrace::jobs
