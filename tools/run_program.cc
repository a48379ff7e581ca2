// run-program: inference and training on one machine.

#include <memory>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "executor/standard_runtime.h"
#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "kernels/cpu/cpu_isa.h"
#include "tools/common/signal_watch.h"
#include "tools/common/tool.h"
#include "tools/run/check_gradients.h"
#include "tools/run/cluster.h"
#include "tools/run/float64_run.h"
#include "tools/run/gpu.h"
#include "tools/run/options.h"
#include "tools/run/roles.h"
#include "tools/run/run_once.h"
#include "tools/run/unused.h"
#include "tools/verbs.h"

namespace {

// Fills memory with bytes that read as very large numbers when it is allocated and as very small
// ones when it is freed. This also covers the private buffers of kernels; executors check tensors
// only.
void fill_allocations() {
#ifdef __GLIBC__
  constexpr int kOfFreed = 0x80;  // new memory gets the complement
  ::mallopt(M_PERTURB, kOfFreed);
#endif
}

}  // namespace

int millrace::tools::run_program(int argc, char** argv) {
  Tool tool({.name = "run-program",
             .purpose = std::string(kRunProgramPurpose),
             .examples = {"run-program --model-dir MODEL --feed x=x.npy --output out.npz",
                          "run-program --program main.pb --startup startup.pb \\\n"
                          "      --feed-steps feeds.npz --steps 10 --fetch loss",
                          "run-program --program main.pb --startup startup.pb \\\n"
                          "      --feed-steps feeds.npz --check-gradients",
                          "run-program --batch cases.jsonl"},
             .exit_codes = {{0, "done"},
                            {1, "--check-against or --check-gradients found a difference"},
                            {4, "an op failed while running"},
                            {5, "another process was lost, or did not connect in time"},
                            {130, "interrupted (SIGINT) after a step"},
                            {143, "terminated (SIGTERM) after a step"}},
             .notes = {}});
  RunOptions options;
  add_run_options(tool, options);
  return tool.run(argc, argv, [&]() -> millrace::StatusOr<int> {
    for (const std::string& remark : fleet::unread_variables(fleet::process_environment()))
      tool.log(LogLevel::kWarning, remark);
    MILLRACE_RETURN_IF_ERROR(check_unused(tool, options));
    if (tool.given("--cpu-isa"))
      MILLRACE_RETURN_IF_ERROR(millrace::kernels::limit_cpu_isa(options.cpu_isa));
    if (options.precision == "tf32" && !wants_gpu(options))
      return Status(StatusCode::kUsage, "--precision tf32 needs a GPU");
    MILLRACE_RETURN_IF_ERROR(check_float64_run(options));
    if (options.ranks.engine == "nccl" && !wants_gpu(options))
      return Status(StatusCode::kUsage, "--engine nccl needs a GPU: expected --devices gpu:N");
    if (wants_gpu(options) && options.inter_op) {
      return Unimplemented("--inter-op with --devices {}: supported only for programs on the CPU",
                           options.devices);
    }
    if (options.debug_memory) {
      if (wants_gpu(options) || !options.ps.cluster.empty() || !options.ps.role.empty())
        return Unimplemented(
            "--debug-memory with {}: supported only for programs that run on the CPU of this "
            "process",
            wants_gpu(options) ? "--devices " + options.devices : "parameter servers");
      fill_allocations();
    }
    if (!options.ps.stats.empty() && options.ps.role != "trainer" && options.ps.role != "auto")
      return Status(StatusCode::kUsage, "--stats: expected --role trainer");
    if (options.ps.role.empty() && !options.ps.metrics.empty() && options.ps.metrics != "0")
      return Status(StatusCode::kUsage, "--metrics: expected a role of a job with servers");
    if (!options.ps.report.empty() && options.ps.cluster.empty())
      return Status(StatusCode::kUsage, "--report: expected --cluster");
    MILLRACE_RETURN_IF_ERROR(check_gradients_usage(tool));
    if (!options.ps.cluster.empty()) return run_cluster(tool, options);
    if (!options.ps.role.empty()) return run_role(tool, options);
    MILLRACE_ASSIGN_OR_RETURN(const auto rings, rings_of_job(options.ranks, options.ps.job_key));
    fill_in_rank(options, rings == nullptr ? 0 : rings->rank(), tool.common().output);
    SignalWatch watch;  // must be created before other threads
    watch.start({});
    const auto runtime = millrace::executor::standard_runtime(options.allow_dir, rings);
    MILLRACE_ASSIGN_OR_RETURN(options.gpus, open_gpu_contexts(options));
    for (const std::string& library : missing_libraries(options.gpus))
      tool.log(LogLevel::kWarning,
               "plain loops replace a library that is missing, slowly: " + library);
    if (tool.given("--check-gradients")) return run_check_gradients(tool, options, runtime);
    if (!options.batch.empty()) return run_batch(tool, options, runtime, watch);
    if (options.benchmark > 0) return run_benchmark(tool, options, runtime, watch);
    return run_once(tool, options, runtime, watch);
  });
}
