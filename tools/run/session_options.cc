#include "tools/run/session_options.h"

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "tools/run/parallel.h"

namespace millrace::tools {
namespace {

Status check_parallel_words(const RunOptions& options) {
  if (options.parallel.feed_mode != "split" && options.parallel.feed_mode != "list") {
    return {StatusCode::kUsage, fmt::format("--feed-mode: expected split or list, found '{}'",
                                            options.parallel.feed_mode)};
  }
  if (options.parallel.persistables_of != "first" && options.parallel.persistables_of != "all") {
    return {StatusCode::kUsage, fmt::format("--persistables-of: expected first or all, found '{}'",
                                            options.parallel.persistables_of)};
  }
  return Ok();
}

}  // namespace

StatusOr<jobs::SessionOptions> session_options(const Tool& tool, const RunOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const int devices, device_count(options));
  if (options.ranks.engine == "nccl" && devices > 1)
    return Unimplemented("--engine nccl: supported for processes with one GPU each, found {}",
                         options.devices);
  jobs::SessionOptions session;
  session.program = options.program;
  session.startup = options.startup;
  session.params = options.params;
  session.model_dir = options.model_dir;
  session.params_filename = options.params_filename;
  session.fetches = options.fetches;
  for (const auto* const list : {&options.dump.fields, &options.dump.params})
    session.fetches.insert(session.fetches.end(), list->begin(), list->end());
  session.executor.threads = tool.common().threads;
  session.executor.seed = tool.common().seed;
  // a NaN must be traced to an op of the given program
  session.executor.optimize = options.optimize && !options.check_nan;
  session.executor.bf16_products = options.precision == "bf16";
  session.executor.inter_op = options.inter_op;
  session.executor.debug_memory = options.debug_memory;
  session.executor.gpu = options.gpus.empty() ? nullptr : options.gpus.front();
  session.reads_parameters = !options.save_params.empty() || !options.save_persistables.empty() ||
                             !options.save_model.empty() || options.save_every != 0 ||
                             !options.allow_dir.empty();
  session.in_float64 = options.precision == "f64";
  session.checkpoints = {options.checkpoint_dir, options.save_every, options.keep_last,
                         options.resume, options.fail_on_save_error};
  session.parallel = [&tool, &options,
                      devices](const Program& program) -> StatusOr<executor::ParallelOptions> {
    MILLRACE_RETURN_IF_ERROR(check_parallel_words(options));
    return parallel_options(tool, options, devices, program);
  };
  session.wants_parallel = wants_parallel(options, devices);
  session.device_values = {options.parallel.rows_per_device, options.parallel.feed_mode == "list",
                           options.parallel.merge_fetches};
  session.data_parallel = options.ranks.data_parallel;
  session.wait_ms = options.ranks.wait_ms;
  session.reading.max_bytes = tool.common().max_model_bytes;
  session.log = tool.log_sink();
  return session;
}

}  // namespace millrace::tools
