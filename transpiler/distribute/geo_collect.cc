#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/distribute/server_job.h"

namespace millrace::transpiler {

Status geo_collect(Program& main, PassContext& context, DistributionJob& job) {
  MILLRACE_RETURN_IF_ERROR(collect_pairs(main, job));
  return find_tables(main, context, job);
}

}  // namespace millrace::transpiler
