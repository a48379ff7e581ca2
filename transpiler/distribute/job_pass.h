#pragma once

#include <cstdint>
#include <memory>

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/status.h"
#include "transpiler/pass.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {

/// What a pass of a distribution does: it rewrites the main program, or the startup program of the
/// context, and reads and completes the facts of the job.
template <typename Job>
using JobRewrite = Status (*)(Program& main, PassContext& context, Job& job);

/// A pass that works on the facts of one distribution, such as a DistributionJob. The edit counters
/// of the programs tell whether it changed one.
/// Errors of a run: kInvalidArgument if the context has no startup program or no facts of type Job;
/// those of the rewrite.
template <typename Job>
class JobPass final : public Pass {
 public:
  /// \param name  a literal
  JobPass(llvm::StringRef name, JobRewrite<Job> rewrite) : name_(name), rewrite_(rewrite) {}

  [[nodiscard]] llvm::StringRef name() const override { return name_; }

  StatusOr<bool> run(Program& main, PassContext& context) override {
    auto* const job = dynamic_cast<Job*>(context.job);
    if (job == nullptr)
      return InvalidArgument("pass '{}' works only inside 'distribute'", name_.str());
    if (context.startup == nullptr) return InvalidArgument("there is no startup program");
    const uint64_t before = count_edits(main, context);
    MILLRACE_RETURN_IF_ERROR(rewrite_(main, context, *job));
    return count_edits(main, context) != before;
  }

 private:
  llvm::StringRef name_;
  JobRewrite<Job> rewrite_;
};

/// Adds such a pass to the registry.
/// \param name, summary  literals; see PassInfo
template <typename Job>
void add_job_pass(PassRegistry& registry, llvm::StringRef name, llvm::StringRef summary,
                  JobRewrite<Job> rewrite) {
  registry.add(PassInfo(name, summary)
                   .factory([name, rewrite](
                                const PassOptions& /*options*/) -> StatusOr<std::unique_ptr<Pass>> {
                     return std::unique_ptr<Pass>(std::make_unique<JobPass<Job>>(name, rewrite));
                   }));
}

}  // namespace millrace::transpiler
