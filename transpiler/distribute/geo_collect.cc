#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/server_job.h"
#include "transpiler/distribute/steps.h"

namespace millrace::transpiler {
namespace {

class GeoCollect final : public Pass {
 public:
  llvm::StringRef name() const override { return "geo-collect"; }

  StatusOr<bool> run(Program& main, PassContext& context) override {
    MILLRACE_ASSIGN_OR_RETURN(DistributionJob* const job, job_of(context, name()));
    MILLRACE_RETURN_IF_ERROR(collect_pairs(main, *job));
    MILLRACE_RETURN_IF_ERROR(find_tables(main, context, *job));
    return true;
  }
};

}  // namespace

std::unique_ptr<Pass> geo_collect() {
  return std::make_unique<GeoCollect>();
}

}  // namespace millrace::transpiler
