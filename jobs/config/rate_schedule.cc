#include "jobs/config/rate_schedule.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "jobs/config/json_fields.h"

namespace millrace::jobs {
namespace {

using Json = nlohmann::json;

StatusOr<RateAtStep> read_noam(JsonFields& fields) {
  double width = 0;
  double warmup = 0;
  double base = 1;
  MILLRACE_RETURN_IF_ERROR(fields.number("d_model", width)
                               .number("warmup_steps", warmup)
                               .number("learning_rate", base)
                               .require("d_model")
                               .require("warmup_steps")
                               .finish());
  if (width <= 0 || warmup <= 0)
    return InvalidArgument(
        "'d_model' and 'warmup_steps': expected numbers above 0, found {} and {}", width, warmup);
  return RateAtStep([=](int64_t step) {
    const auto n = static_cast<double>(step);
    const double fading = step == 0 ? 1 : std::pow(n, -0.5);
    const double rising = n * std::pow(warmup, -1.5);
    return static_cast<float>(base * std::pow(width, -0.5) * std::min(fading, rising));
  });
}

StatusOr<RateAtStep> read_fading_rate(const std::string& type, JsonFields& fields) {
  double base = 0;
  double gamma = 0;
  MILLRACE_RETURN_IF_ERROR(fields.number("learning_rate", base)
                               .number("gamma", gamma)
                               .require("learning_rate")
                               .require("gamma")
                               .finish());
  if (type == "exponential_scheduler") {
    return RateAtStep([=](int64_t step) {
      return static_cast<float>(base * std::pow(gamma, static_cast<double>(step)));
    });
  }
  if (type == "natural_exp_scheduler") {
    return RateAtStep([=](int64_t step) {
      return static_cast<float>(base * std::exp(-gamma * static_cast<double>(step)));
    });
  }
  if (type == "inverse_time_scheduler") {
    return RateAtStep([=](int64_t step) {
      return static_cast<float>(base / (1 + gamma * static_cast<double>(step)));
    });
  }
  return InvalidArgument(
      "'type': expected exponential_scheduler, natural_exp_scheduler, inverse_time_scheduler or "
      "noam_scheduler, found '{}'",
      type);
}

}  // namespace

StatusOr<RateAtStep> parse_rate_schedule(const std::string& text) {
  MILLRACE_ASSIGN_OR_RETURN(const Json json, parse_json_object(text));
  JsonFields fields(json, "");
  std::string type;
  MILLRACE_RETURN_IF_ERROR(fields.text("type", type).require("type").status());
  return type == "noam_scheduler" ? read_noam(fields) : read_fading_rate(type, fields);
}

}  // namespace millrace::jobs
