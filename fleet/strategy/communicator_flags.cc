#include "fleet/strategy/communicator_flags.h"

#include <optional>

namespace millrace::fleet {

std::map<std::string, std::string> communicator_flags(ps::CommMode mode, int64_t k_steps,
                                                      const EnvironmentReader& environment) {
  const std::string cpus = environment("CPU_NUM").value_or("1");
  const std::string batches = mode == ps::CommMode::kGeo ? std::to_string(k_steps) : cpus;
  std::map<std::string, std::string> flags;
  const auto set = [&](const std::string& key, const std::string& fallback) {
    flags[key] = environment("FLAGS_" + key).value_or(fallback);
  };
  set("communicator_max_merge_var_num", batches);
  set("communicator_send_queue_size", batches);
  set("communicator_thread_pool_size", "5");
  set("communicator_send_wait_times", "5");
  if (mode == ps::CommMode::kAsync) {
    set("communicator_independent_recv_thread", "1");
    set("communicator_min_send_grad_num_before_recv", cpus);
    set("communicator_is_sgd_optimizer", "1");
  }
  if (mode == ps::CommMode::kSync || mode == ps::CommMode::kHalfAsync) {
    flags["communicator_max_merge_var_num"] = cpus;
    flags["communicator_send_queue_size"] = cpus;
  }
  return flags;
}

}  // namespace millrace::fleet
