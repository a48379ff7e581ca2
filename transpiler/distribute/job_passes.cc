#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute/federated_passes.h"
#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/job_pass.h"
#include "transpiler/distribute/nccl2_passes.h"
#include "transpiler/distribute/pserver_passes.h"

namespace millrace::transpiler {
namespace {

void register_pserver_passes(PassRegistry& registry) {
  add_job_pass(registry, "collect-optimizers",
               "find optimize ops and (param, grad) pairs; move clipping to the trainer",
               collect_optimizers);
  add_job_pass(registry, "find-tables", "find sparse, prefetched and distributed lookup tables",
               find_tables);
  add_job_pass(registry, "slice-vars", "split params and gradients into slices of whole rows",
               slice_vars);
  add_job_pass(registry, "place-slices", "assign the slices to servers", place_slices);
  add_job_pass(registry, "insert-sends", "split and send each gradient after its last writer",
               insert_sends);
  add_job_pass(registry, "share-step-counter",
               "sum the step counters of all trainers in asynchronous schedules",
               share_step_counter);
  add_job_pass(registry, "append-send-barrier", "wait until all gradients have arrived",
               append_send_barrier);
  add_job_pass(registry, "append-recvs", "receive the updated params", append_recvs);
  add_job_pass(registry, "replace-prefetched-lookups", "look up remote_prefetch tables by row",
               replace_prefetched_lookups);
  add_job_pass(registry, "join-params", "wait for all params and join their slices", join_params);
  add_job_pass(registry, "extend-trainer-startup", "fetch the initial params from the servers",
               extend_trainer_startup);
  add_job_pass(registry, "replace-distributed-lookups",
               "look up a distributed table through its servers", replace_distributed_lookups);
  add_job_pass(registry, "list-optimizer-state", "list the optimizer state of every server",
               list_optimizer_state);
}

void register_geo_passes(PassRegistry& registry) {
  add_job_pass(registry, "geo-collect",
               "find params, gradients and tables of an optimizer that stays on the trainer",
               geo_collect);
  add_job_pass(registry, "geo-cut",
               "split params into slices, assign them to servers and declare the vars of changes",
               geo_cut);
  add_job_pass(registry, "geo-send-ids", "pass the ids of sparse lookups to the communicator",
               geo_send_ids);
  add_job_pass(registry, "geo-extend-startup",
               "fetch the initial params from the servers and report them to the communicator",
               geo_extend_startup);
}

void register_federated_passes(PassRegistry& registry) {
  add_job_pass(registry, "federated-copy-params", "copy each param that an sgd op updates",
               federated_copy_params);
  add_job_pass(registry, "federated-recv", "make the program that receives the params",
               federated_recv);
  add_job_pass(registry, "federated-send", "send the copies to the server", federated_send);
}

void register_collective_passes(PassRegistry& registry) {
  add_job_pass(registry, "collective-init-communicators",
               "set up the communicators in the startup program", init_communicators);
  add_job_pass(registry, "collective-broadcast-parameters",
               "start every trainer with the params of rank 0", broadcast_parameters);
  add_job_pass(registry, "collective-snapshot-parameters",
               "keep a copy of each param in the startup program", snapshot_parameters);
  register_scale_loss_gradient(registry);
  add_job_pass(registry, "collective-allreduce-gradients",
               "reduce each gradient after the op that computes it", allreduce_gradients);
  add_job_pass(registry, "collective-allreduce-fused", "reduce all gradients together",
               allreduce_fused);
  add_job_pass(registry, "collective-average-updates",
               "apply the mean of the changes that the ranks computed", average_updates);
}

}  // namespace

void add_distribute_job_passes(PassRegistry& registry) {
  register_pserver_passes(registry);
  register_geo_passes(registry);
  register_federated_passes(registry);
  register_collective_passes(registry);
  add_job_pass(registry, "nccl2-generate-ids",
               "create the ids of the communicators in the startup program", nccl2_generate_ids);
}

}  // namespace millrace::transpiler
