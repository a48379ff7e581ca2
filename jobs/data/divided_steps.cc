#include "jobs/data/divided_steps.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "framework/base/errors.h"

namespace millrace::jobs {

StatusOr<StepRange> steps_of_ranks(int64_t own, executor::CollectiveGroup& ranks) {
  std::vector<int64_t> all(static_cast<size_t>(ranks.size()));
  MILLRACE_RETURN_IF_ERROR(ranks.all_gather(reinterpret_cast<const std::byte*>(&own), sizeof(own),
                                            reinterpret_cast<std::byte*>(all.data())));
  const auto [least, most] = std::ranges::minmax(all);
  return StepRange{least, most};
}

Status agree_on_steps(const FeedOptions& options, executor::CollectiveGroup& ranks, Feeder& feeder,
                      const LogSink& log) {
  if (!options.files.empty() && !options.in_memory)
    return {StatusCode::kUsage,
            "options.divide: ranks that run steps together need options.in_memory, to know the "
            "number of their steps"};
  const int64_t own = feeder.steps();
  MILLRACE_ASSIGN_OR_RETURN(const StepRange range, steps_of_ranks(own, ranks));
  const auto [least, most] = range;
  if (least == most && own > 0) return Ok();
  if (!options.drop_last || least == 0)
    return InvalidData("ranks have {} to {} steps, but they must run the same number", least, most)
        .with_hint("options.drop_last leaves out the last examples, another batch size may fit");
  feeder.limit_steps(least);
  if (own > least)
    log(LogLevel::kWarning,
        fmt::format("ends after {} of {} steps, with the rank that has the fewest", least, own));
  return Ok();
}

}  // namespace millrace::jobs
