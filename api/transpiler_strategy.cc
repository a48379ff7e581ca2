#include "api/fleet.h"
#include "framework/base/errors.h"

namespace millrace::api {

namespace transpiler_strategy {

// Errors: kInvalidArgument naming a setting that only jobs with typed tables have.
Status check_no_tables(const FleetStrategy& strategy) {
  const FleetStrategy defaults;
  const char* const setting =
      !strategy.tables.empty()                               ? "tables"
      : !strategy.trainer_desc_configs.empty()               ? "trainer_desc_configs"
      : !strategy.fs_client_param.empty()                    ? "fs_client_param"
      : strategy.use_cvm != defaults.use_cvm                 ? "use_cvm"
      : strategy.adam_d2sum != defaults.adam_d2sum           ? "adam_d2sum"
      : strategy.all_optimizers != defaults.all_optimizers   ? "all_optimizers"
      : strategy.dense_gradients != defaults.dense_gradients ? "dense_gradients"
                                                             : nullptr;
  if (setting == nullptr) return Ok();
  return InvalidArgument(
      "strategy.{}: a job whose servers run optimizer blocks has no typed tables", setting);
}

}  // namespace transpiler_strategy

TranspilerStrategy TranspilerStrategy::sync() {
  return {};
}

TranspilerStrategy TranspilerStrategy::async() {
  TranspilerStrategy made;
  made.config.sync_mode = false;
  made.config.runtime_split_send_recv = true;
  return made;
}

TranspilerStrategy TranspilerStrategy::half_async() {
  TranspilerStrategy made = async();
  made.config.half_async = true;
  return made;
}

TranspilerStrategy TranspilerStrategy::geo(int64_t update_frequency) {
  TranspilerStrategy made = async();
  made.config.geo_sgd_mode = true;
  made.config.geo_sgd_need_push_nums = update_frequency;
  return made;
}

TranspilerStrategy TranspilerStrategy::from(const transpiler::DistributeTranspilerConfig& config) {
  TranspilerStrategy made;
  made.config = config;
  if (!config.sync_mode && !config.runtime_split_send_recv) {
    made.config.half_async = true;
    made.config.runtime_split_send_recv = true;
  }
  return made;
}

StatusOr<TranspilerStrategy> TranspilerStrategy::from(const FleetStrategy& strategy) {
  MILLRACE_RETURN_IF_ERROR(transpiler_strategy::check_no_tables(strategy));
  int64_t k_steps = 0;
  for (const auto& [name, value] : strategy.a_sync_configs) {
    const auto* const number = std::get_if<int64_t>(&value);
    if (name != "k_steps")
      return InvalidArgument("strategy.a_sync_configs: only k_steps chooses a mode, found '{}'",
                             name);
    if (number == nullptr) return InvalidArgument("k_steps: expected an integer");
    k_steps = *number;
  }
  if (k_steps == 0) return strategy.a_sync ? async() : sync();
  if (strategy.a_sync && k_steps > 0) return geo(k_steps);
  return InvalidArgument("k_steps: expected 0{}, found {}",
                         strategy.a_sync ? " or more" : " without a_sync", k_steps);
}

}  // namespace millrace::api
