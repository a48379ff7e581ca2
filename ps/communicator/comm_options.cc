#include "ps/communicator/comm_options.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

constexpr std::string_view kCommOptionsPrefix = "communicator_";
constexpr std::string_view kFlagPrefix = "FLAGS_communicator_";

enum Modes : unsigned { kAll = 15, kAsyncOnly = 1U << 1U, kNotPassed = 0 };

struct Setting {
  std::string_view name;
  int CommunicatorOptions::*number;
  bool CommunicatorOptions::*flag;
  int smallest;
  unsigned passed;  ///< bit mask of the modes that pass it on as a flag
};

constexpr Setting kSettings[] = {
    {"fake_rpc", nullptr, &CommunicatorOptions::fake_rpc, 0, kNotPassed},
    {"independent_recv_thread", nullptr, &CommunicatorOptions::independent_recv_thread, 0,
     kAsyncOnly},
    {"is_sgd_optimizer", nullptr, &CommunicatorOptions::is_sgd_optimizer, 0, kAsyncOnly},
    {"max_merge_var_num", &CommunicatorOptions::max_merge_var_num, nullptr, 1, kAll},
    {"merge_sparse_grad", nullptr, &CommunicatorOptions::merge_sparse_grad, 0, kNotPassed},
    {"min_send_grad_num_before_recv", &CommunicatorOptions::min_send_grad_num_before_recv, nullptr,
     0, kAsyncOnly},
    {"rpc_deadline", &CommunicatorOptions::rpc_deadline_ms, nullptr, 1, kNotPassed},
    {"rpc_retry_times", &CommunicatorOptions::rpc_retry_times, nullptr, 0, kNotPassed},
    {"send_queue_size", &CommunicatorOptions::send_queue_size, nullptr, 1, kAll},
    {"send_wait_times", &CommunicatorOptions::send_wait_times, nullptr, 0, kAll},
    {"thread_pool_size", &CommunicatorOptions::thread_pool_size, nullptr, 1, kAll},
};

StatusOr<int> parse_number(std::string_view key, std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return InvalidArgument("{} is '{}', expected an integer", key, text);
  return number;
}

StatusOr<bool> parse_flag(std::string_view key, std::string_view text) {
  if (text == "1" || text == "true" || text == "True") return true;
  if (text == "0" || text == "false" || text == "False") return false;
  return InvalidArgument("{} is '{}', expected 0 or 1", key, text);
}

Status take_setting(const Setting& setting, std::string_view key, std::string_view text,
                    CommunicatorOptions& options) {
  if (setting.flag != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(options.*setting.flag, parse_flag(key, text));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(options.*setting.number, parse_number(key, text));
  return Ok();
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Status take_extra(std::string_view key, const std::string& text, CommunicatorOptions& options) {
  if (key == "trainers") {
    MILLRACE_ASSIGN_OR_RETURN(options.trainers, parse_number(key, text));
  } else if (key == "trainer_id") {
    MILLRACE_ASSIGN_OR_RETURN(options.trainer_id, parse_number(key, text));
  } else if (key == "barrier_table_id") {
    MILLRACE_ASSIGN_OR_RETURN(options.barrier_table_id, parse_number(key, text));
  } else if (key == "need_global_step") {
    MILLRACE_ASSIGN_OR_RETURN(options.need_global_step, parse_flag(key, text));
  } else if (key == "pserver_endpoints") {
    options.pserver_endpoints = split_list(text);
  }
  return Ok();
}

// Keys with the prefix of flags are applied after those with the plain prefix, so that they win.
Status take_all(std::string_view prefix, const std::map<std::string, std::string>& settings,
                CommunicatorOptions& options, Remarks& remarks) {
  for (const auto& [key, text] : settings) {
    if (!std::string_view(key).starts_with(prefix)) continue;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    const Setting* const known =
        std::find_if(std::begin(kSettings), std::end(kSettings),
                     [&](const Setting& setting) { return setting.name == name; });
    if (known == std::end(kSettings)) {
      remarks.push_back(fmt::format("'{}' is not a communicator setting", key));
      continue;
    }
    MILLRACE_RETURN_IF_ERROR(take_setting(*known, key, text, options));
  }
  return Ok();
}

bool is_default(const Setting& setting, const CommunicatorOptions& options) {
  const CommunicatorOptions fresh;
  return setting.flag != nullptr ? options.*setting.flag == fresh.*setting.flag
                                 : options.*setting.number == fresh.*setting.number;
}

// Adds remarks for given settings that are never read.
void remark_unread(CommMode mode, const std::map<std::string, std::string>& settings,
                   const CommunicatorOptions& options, Remarks& remarks) {
  const auto is_given = [&](std::string_view name) {
    const std::string key(name);
    return settings.contains(std::string(kFlagPrefix) + key) ||
           settings.contains(std::string(kCommOptionsPrefix) + key);
  };
  const auto say = [&](std::string_view name, std::string_view why) {
    remarks.push_back(fmt::format("communicator_{} has no effect: {}", name, why));
  };
  for (const Setting& setting : kSettings) {
    if (!is_given(setting.name) || is_default(setting, options)) continue;
    if (setting.passed != kNotPassed && (setting.passed >> static_cast<unsigned>(mode) & 1U) == 0)
      say(setting.name, fmt::format("it is read in async mode, not in {}", comm_mode_name(mode)));
  }
  if (is_given("rpc_retry_times") &&
      options.rpc_retry_times != CommunicatorOptions().rpc_retry_times)
    say("rpc_retry_times", "calls are repeated until their deadline");
  for (const auto& [key, why] : {std::pair("barrier_table_id", "barriers need no table"),
                                 {"pserver_endpoints", "the contexts name the servers"}}) {
    if (settings.contains(key)) remarks.push_back(fmt::format("{} has no effect: {}", key, why));
  }
}

void force(std::string_view name, int& value, int forced, CommMode mode, Remarks& remarks) {
  if (value == forced) return;
  remarks.push_back(
      fmt::format("communicator_{} is {}, not {}: in {} mode it is the number of threads", name,
                  forced, value, comm_mode_name(mode)));
  value = forced;
}

}  // namespace

StatusOr<CommMode> comm_mode(int number) {
  if (number < 0 || number > 3)
    return InvalidArgument(
        "{} is no mode of a communicator, expected 0 (sync), 1 (async), 2 (half-async) or 3 (geo)",
        number);
  return static_cast<CommMode>(number);
}

std::string_view comm_mode_name(CommMode mode) {
  switch (mode) {
    case CommMode::kSync:
      return "sync";
    case CommMode::kAsync:
      return "async";
    case CommMode::kHalfAsync:
      return "half-async";
    case CommMode::kGeo:
      return "geo";
  }
  return "unknown";
}

StatusOr<CommunicatorOptions> communicator_options(
    CommMode mode, const std::map<std::string, std::string>& settings, int cpu_num, int k_steps,
    Remarks& remarks) {
  CommunicatorOptions options;
  options.cpu_num = cpu_num;
  options.max_merge_var_num = mode == CommMode::kGeo ? k_steps : cpu_num;
  options.send_queue_size = options.max_merge_var_num;
  options.min_send_grad_num_before_recv = cpu_num;
  for (const auto& [key, text] : settings) MILLRACE_RETURN_IF_ERROR(take_extra(key, text, options));
  MILLRACE_RETURN_IF_ERROR(take_all(kCommOptionsPrefix, settings, options, remarks));
  MILLRACE_RETURN_IF_ERROR(take_all(kFlagPrefix, settings, options, remarks));
  remark_unread(mode, settings, options, remarks);
  MILLRACE_RETURN_IF_ERROR(settle_options(mode, options, remarks));
  return options;
}

Status settle_options(CommMode mode, CommunicatorOptions& options, Remarks& remarks) {
  for (const Setting& setting : kSettings) {
    if (setting.number == nullptr || options.*setting.number >= setting.smallest) continue;
    return InvalidArgument("communicator_{} is {}, expected at least {}", setting.name,
                           options.*setting.number, setting.smallest);
  }
  if (options.cpu_num < 1)
    return InvalidArgument("CPU_NUM is {}, expected at least 1", options.cpu_num);
  if (options.trainers < 1)
    return InvalidArgument("trainers is {}, expected at least 1", options.trainers);
  if (options.trainer_id < 0)
    return InvalidArgument("trainer_id is {}, expected at least 0", options.trainer_id);
  if (mode == CommMode::kSync || mode == CommMode::kHalfAsync) {
    force("max_merge_var_num", options.max_merge_var_num, options.cpu_num, mode, remarks);
    force("send_queue_size", options.send_queue_size, options.cpu_num, mode, remarks);
  }
  return Ok();
}

std::map<std::string, std::string> communicator_flags(CommMode mode,
                                                      const CommunicatorOptions& options) {
  std::map<std::string, std::string> flags;
  for (const Setting& setting : kSettings) {
    if ((setting.passed >> static_cast<unsigned>(mode) & 1U) == 0) continue;
    const int value =
        setting.flag != nullptr ? static_cast<int>(options.*setting.flag) : options.*setting.number;
    flags[std::string(kCommOptionsPrefix) + std::string(setting.name)] = std::to_string(value);
  }
  return flags;
}

}  // namespace millrace::ps
