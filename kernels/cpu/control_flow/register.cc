#include "kernels/cpu/control_flow/control_flow.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_control_flow_kernels(KernelRegistry& registry) {
  add_arrays(registry);
  add_assign(registry);
  add_branches(registry);
  add_rank_tables(registry);
  add_reports(registry);
}

}  // namespace millrace::kernels
