#include "framework/base/errors.h"
#include "transpiler/distribute/transpilation.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// A number means that many servers on this machine, starting at the original's default port.
std::string server_list(const std::vector<std::string>& given) {
  int64_t count = 0;
  std::string list;
  if (given.size() == 1 && !llvm::StringRef(given[0]).getAsInteger(10, count) && count > 0) {
    constexpr int64_t kFirstPort = 6174;
    for (int64_t i = 0; i < count; ++i)
      list += (i == 0 ? "" : ",") + fmt::format("127.0.0.1:{}", kFirstPort + i);
    return list;
  }
  for (const std::string& endpoint : given) list += (list.empty() ? "" : ",") + endpoint;
  return list;
}

class Distribute final : public Pass {
 public:
  explicit Distribute(const PassOptions& options)
      : transpiler_(options.string("transpiler")),
        emit_(options.string("emit")),
        server_(options.integer("server")) {
    config_.slice_var_up = options.flag("slice-var-up");
    config_.split_method = options.string("split-method");
    config_.min_block_size = options.integer("min-block-size");
    config_.enable_dc_asgd = options.flag("enable-dc-asgd");
    config_.mode = options.string("mode");
    config_.runtime_split_send_recv = options.flag("runtime-split-send-recv");
    config_.sync_mode = options.flag("config-sync-mode");
    config_.half_async = options.flag("half-async");
    config_.completely_not_async = options.flag("completely-not-async");
    config_.collective_mode = options.string("collective-mode");
    config_.nccl_comm_num = options.integer("nccl-comm-num");
    config_.clip_on_trainer = options.flag("clip-on-trainer");
    arguments_.trainer_id = options.integer("trainer-id");
    arguments_.pservers = server_list(options.strings("pservers"));
    arguments_.trainers = options.string("trainers");
    arguments_.sync_mode = options.flag("sync-mode");
    arguments_.current_endpoint = options.string("current-endpoint");
    arguments_.random_seed = static_cast<uint32_t>(options.integer("random-seed"));
  }

  [[nodiscard]] llvm::StringRef name() const override { return "distribute"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const std::unique_ptr<Program> no_startup = Program::create();
    const Program& startup = context.startup == nullptr ? *no_startup : *context.startup;
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Transpilation> plan,
                              Transpilation::create(transpiler_, program, startup, config_,
                                                    arguments_, context.registry));
    const bool of_server = llvm::StringRef(emit_).startswith("pserver");
    if (of_server && (server_ < 0 || static_cast<size_t>(server_) >= plan->server_count())) {
      return InvalidArgument("option 'server' is {} (expected a server in 0..{})", server_,
                             static_cast<int64_t>(plan->server_count()) - 1);
    }
    MILLRACE_ASSIGN_OR_RETURN(
        const RolePrograms roles,
        of_server ? plan->pserver(static_cast<size_t>(server_)) : plan->trainer());
    for (const std::string& remark : plan->remarks()) context.remarks.push_back(remark);
    program.replace_with(llvm::StringRef(emit_).endswith("startup") ? *roles.startup : *roles.main);
    if (context.startup != nullptr) context.startup->replace_with(*roles.startup);
    return true;
  }

 private:
  std::string transpiler_;
  std::string emit_;
  int64_t server_;
  DistributeTranspilerConfig config_;
  TranspileArguments arguments_;
};

}  // namespace

// The pass "distribute", which replaces a training program by the program of one role of a cluster.
// Its options are the fields of DistributeTranspilerConfig and TranspileArguments, with dashes
// instead of underscores.
void add_distribute_distribute_pass(PassRegistry& registry) {
  const DistributeTranspilerConfig config;
  const TranspileArguments arguments;
  registry.add(
      PassInfo("distribute", "replace a training program by the program of one role of a cluster")
          .string("emit", "trainer", "which program to produce")
          .one_of({"trainer", "trainer-startup", "pserver", "pserver-startup"})
          .integer("server", 0, "index of the server for pserver and pserver-startup")
          .strings("pservers", "endpoints of the servers, or their number on this machine")
          .required()
          .string("trainers", arguments.trainers, "number of trainers, or their endpoints")
          .integer("trainer-id", arguments.trainer_id, "number of the trainer, from 0")
          .flag("sync-mode", arguments.sync_mode, "synchronous training")
          .string("current-endpoint", arguments.current_endpoint, "endpoint of this process")
          .integer("random-seed", arguments.random_seed, "seed of the program object")
          .string("transpiler", "distribute", "distribute, geo or federated")
          .string("mode", config.mode, "pserver, nccl2 or collective")
          .string("collective-mode", config.collective_mode,
                  "grad_allreduce, local_sgd or single_process_multi_thread")
          .integer("nccl-comm-num", config.nccl_comm_num, "communicators")
          .flag("slice-var-up", config.slice_var_up, "split variables into slices")
          .string("split-method", config.split_method, "RoundRobin, HashName or Balanced")
          .integer("min-block-size", config.min_block_size, "smallest slice, in elements")
          .flag("enable-dc-asgd", config.enable_dc_asgd, "delay compensation")
          .flag("runtime-split-send-recv", config.runtime_split_send_recv,
                "split and join slices at run time")
          .flag("config-sync-mode", config.sync_mode, "sync_mode of the configuration")
          .flag("half-async", config.half_async, "with runtime split: a barrier each step")
          .flag("completely-not-async", config.completely_not_async, "servers merge per trainer")
          .flag("clip-on-trainer", config.clip_on_trainer, "clip gradients before they are sent")
          .makes<Distribute>());
}

}  // namespace millrace::transpiler
