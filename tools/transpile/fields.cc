#include "tools/transpile/fields.h"

#include "tools/common/numbers.h"
#include "tools/common/switch.h"

namespace millrace::tools {
namespace {

void add_pserver_fields(CLI::App& app, TranspileOptions& o) {
  const char* const group = "Parameter servers";
  auto& c = o.config;
  auto& a = o.arguments;
  app.add_option("--pservers", a.pservers, "servers, host:port,host:port")
      ->capture_default_str()
      ->group(group);
  app.add_option("--trainers", a.trainers,
                 "number of trainers; for nccl2 and collective: their endpoints")
      ->capture_default_str()
      ->group(group);
  app.add_option("--trainer-id", o.trainer_id, "trainer whose program is written: a number, or all")
      ->capture_default_str()
      ->group(group);
  add_switch(app, "--sync-mode", a.sync_mode, "synchronous graph")->group(group);
  app.add_option("--current-endpoint", a.current_endpoint, "endpoint of this process")
      ->capture_default_str()
      ->group(group);
  add_switch(app, "--slice-var-up", c.slice_var_up, "split variables into slices")->group(group);
  app.add_flag("!--no-slice-var-up", c.slice_var_up, "keep variables whole")->group(group);
  app.add_option("--split-method", c.split_method, "RoundRobin, HashName or Balanced")
      ->capture_default_str()
      ->group(group);
  app.add_option("--min-block-size", c.min_block_size, "smallest slice, in elements")
      ->check(whole_number<int64_t>())
      ->capture_default_str()
      ->group(group);
  add_switch(app, "--enable-dc-asgd", c.enable_dc_asgd, "delay compensation (DC-ASGD)")
      ->group(group);
  add_switch(app, "--runtime-split-send-recv", c.runtime_split_send_recv,
             "split and merge at run time")
      ->group(group);
  add_switch(app, "--half-async", c.half_async, "with runtime split: a barrier in each step")
      ->group(group);
  add_switch(app, "--completely-not-async", c.completely_not_async,
             "servers merge gradients per trainer")
      ->group(group);
  app.add_option("--heter-workers", o.heter.endpoints,
                 "processes that run the ops with an op_device other than a CPU, "
                 "host:port,host:port")
      ->delimiter(',')
      ->group(group);
  app.add_option("--heter-returned", o.heter.returned,
                 "their vars that trainers fetch, besides the loss")
      ->delimiter(',')
      ->group(group);
  add_switch(app, "--geo-sgd-mode", c.geo_sgd_mode, "needs --transpiler geo")->group(group);
  app.add_option("--geo-sgd-need-push-nums", c.geo_sgd_need_push_nums, "steps between two pushes")
      ->check(whole_number<int64_t>())
      ->capture_default_str()
      ->group(group);
}

void add_other_fields(Tool& tool, TranspileOptions& o) {
  CLI::App& app = tool.app();
  auto& c = o.config;
  auto& a = o.arguments;
  app.add_option("--mode", c.mode, "pserver, nccl2 or collective")
      ->capture_default_str()
      ->group("Modes");
  app.add_option("--transpiler", o.transpiler, "distribute, geo or federated")
      ->capture_default_str()
      ->group("Modes");
  app.add_option("--collective-mode", c.collective_mode,
                 "grad_allreduce, local_sgd, single_process_multi_thread")
      ->group("Modes");
  app.add_option("--fuse-allreduce", c.fuse_allreduce,
                 "single_process_multi_thread: 0 one all-reduce per gradient, 1 one fused buffer, "
                 "2 one op with a list")
      ->check(whole_number<int64_t>())
      ->capture_default_str()
      ->group("Modes");
  add_switch(app, "--scale-loss-gradient", c.scale_loss_gradient,
             "single_process_multi_thread: divide gradients by the number of devices and machines")
      ->group("Modes");
  app.add_option("--nccl-comm-num", c.nccl_comm_num, "number of communicators")
      ->check(whole_number<int64_t>())
      ->capture_default_str()
      ->group("Modes");
  add_switch(app, "--use-hierarchical-allreduce", c.use_hierarchical_allreduce,
             "hierarchical all-reduce: two levels of rings")
      ->group("Modes");
  app.add_option("--hierarchical-allreduce-inter-nranks", c.hierarchical_allreduce_inter_nranks,
                 "number of ranks per node")
      ->check(whole_number<int64_t>())
      ->capture_default_str()
      ->group("Modes");
  const char* const rare = "Properties of the program object";
  tool.rare(app.add_option("--random-seed", a.random_seed, "its random_seed")
                ->check(whole_number<uint32_t>())
                ->capture_default_str()
                ->group(rare));
  tool.rare(
      app.add_option("--parameter-order", a.parameter_order, "parameters in order of creation")
          ->delimiter(',')
          ->group(rare));
  tool.rare(
      app.add_option("--program-attrs", o.program_attrs, "attributes, a JSON object")->group(rare));
  tool.rare(app.add_option("--device-count", a.device_count, "local GPUs")
                ->check(whole_number<int64_t>())
                ->capture_default_str()
                ->group(rare));
  tool.rare(add_switch(app, "--config-sync-mode", c.sync_mode, "sync_mode of the configuration")
                ->group(rare));
  tool.rare(add_switch(app, "--wait-port", c.wait_port,
                       "accepted and ignored; the tool starts no processes")
                ->group(rare));
  tool.rare(add_switch(app, "--print-log", c.print_log, "log what each stage did")->group(rare));
  tool.rare(
      add_switch(app, "--clip-on-trainer", c.clip_on_trainer, "clip gradients before they are sent")
          ->group(rare));
  tool.rare(app.add_option("--rpc-get-thread-num", c.rpc_get_thread_num, "threads of a server")
                ->check(whole_number<int64_t>())
                ->group(rare));
  tool.rare(app.add_option("--rpc-send-thread-num", c.rpc_send_thread_num, "threads of a server")
                ->check(whole_number<int64_t>())
                ->group(rare));
  tool.rare(
      app.add_option("--rpc-prefetch-thread-num", c.rpc_prefetch_thread_num, "threads of a server")
          ->check(whole_number<int64_t>())
          ->group(rare));
}

}  // namespace

void add_transpile_options(Tool& tool, TranspileOptions& o) {
  CLI::App& app = tool.app();
  o.config.wait_port = false;
  app.add_option("--program", o.program, "main program: binary or text, - for stdin")
      ->required()
      ->group("Input");
  app.add_option("--startup", o.startup, "startup program")->group("Input");
  add_pserver_fields(app, o);
  add_other_fields(tool, o);
  app.add_option("--sparse-tables", o.sparse_tables,
                 "JSON object: embeddings that become typed tables, with their settings")
      ->type_name("JSON")
      ->group("Parameter servers");
  app.add_option("--io-programs", o.io_programs,
                 "also write the programs that save to and load from this folder")
      ->group("Output");
  add_switch(app, "--explain", o.explain, "print the server and the cost of every slice")
      ->group("Output");
  add_switch(app, "--strip-debug", o.strip_debug, "drop op_callstack")->group("Output");
  app.add_option("--format", o.format, "pb or text")
      ->check(CLI::IsMember({"pb", "text"}).description(""))
      ->type_name("FORM")
      ->default_str("text for *.prog and *.txt; on stdout the form of the input; else pb")
      ->group("Output");
  tool.rare(add_switch(app, "--verify", o.verify, "verify input and outputs")->group("Output"));
  app.add_option("--minimize", o.minimize,
                 "generate a training program; a JSON file gives losses, parameters and optimizer")
      ->type_name("FILE")
      ->group("Training");
  app.add_option(
         "--fleet", o.fleet,
         "with --minimize: write the programs of all processes of a job with typed tables; a "
         "JSON file gives mode, servers and workers")
      ->type_name("FILE")
      ->group("Training");
  app.add_option("--downpour", o.downpour,
                 "write gradients, tables and programs of a DownpourSGD job; a JSON file gives "
                 "losses, settings, servers and workers")
      ->type_name("FILE")
      ->group("Training");
  add_switch(app, "--backward-only", o.backward_only,
             "with --minimize: append gradients, no updates")
      ->group("Training");
  app.add_option("--passes", o.passes, "run passes, such as 'a,b{x=1}'; '' only converts")
      ->group("Passes");
  app.add_option("--print-after", o.print_after, "print the program after a pass, to stderr")
      ->delimiter(',')
      ->group("Passes");
  add_switch(app, "--print-after-all", o.print_after_all, "print it after every pass")
      ->group("Passes");
  app.add_option("--dump-dir", o.dump_dir, "write the program after every pass into this folder")
      ->group("Passes");
  add_switch(app, "--timing", o.timing, "print the time of every pass")->group("Passes");
}

}  // namespace millrace::tools
