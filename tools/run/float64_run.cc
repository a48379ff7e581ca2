#include "tools/run/float64_run.h"

#include "framework/base/errors.h"
#include "tools/run/gpu.h"
#include "tools/run/parallel.h"

namespace millrace::tools {
namespace {

bool in_double(const RunOptions& options) {
  return options.precision == "f64";
}

}  // namespace

Status check_float64_run(const RunOptions& options) {
  if (!in_double(options)) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const int devices, device_count(options));
  const std::pair<bool, const char*> refused[] = {
      {!options.ps.cluster.empty() || !options.ps.role.empty(), "parameter servers"},
      {wants_gpu(options), "--devices gpu"},
      {devices > 1, "several devices"},
      {!options.data.empty() || !options.files.empty(), "--data or --files"},
      {!options.save_params.empty() || !options.save_model.empty() || options.save_every > 0,
       "checkpoints and models, which have the declared types"},
      {!options.resume.empty(), "--resume"},
      {!options.batch.empty(), "--batch"},
  };
  for (const auto& [given, name] : refused) {
    if (given)
      return Unimplemented(
          "--precision f64 with {}: supported only on one CPU device, with --feed or "
          "--feed-steps, and without saving",
          name);
  }
  return Ok();
}

}  // namespace millrace::tools
