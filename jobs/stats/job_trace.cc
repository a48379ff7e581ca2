#include "jobs/stats/job_trace.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"

namespace millrace::jobs {

using OrderedJson = nlohmann::ordered_json;

StatusOr<std::string> join_traces(const std::vector<std::string>& texts) {
  std::vector<OrderedJson> traces;
  double origin = std::numeric_limits<double>::max();
  for (size_t i = 0; i < texts.size(); ++i) {
    OrderedJson trace = OrderedJson::parse(texts[i], nullptr, false);
    const bool is_one = trace.is_object() && trace.contains("traceEvents") &&
                        trace["traceEvents"].is_array() && trace.contains("origin_us") &&
                        trace["origin_us"].is_number() && trace.contains("role") &&
                        trace["role"].is_string();
    if (!is_one) return InvalidData("file {} is not a trace of a trainer or server", i);
    origin = std::min(origin, trace["origin_us"].get<double>());
    traces.push_back(std::move(trace));
  }
  // sorted by name, so that the order of the files does not matter
  std::stable_sort(traces.begin(), traces.end(), [](const OrderedJson& a, const OrderedJson& b) {
    return a["role"].get<std::string>() < b["role"].get<std::string>();
  });
  OrderedJson events = OrderedJson::array();
  for (size_t i = 0; i < traces.size(); ++i) {
    const auto pid = static_cast<int64_t>(i) + 1;
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", pid},
                      {"args", {{"name", traces[i]["role"]}}}});
    const double shift = traces[i]["origin_us"].get<double>() - origin;
    for (OrderedJson& event : traces[i]["traceEvents"]) {
      if (!event.is_object() || !event.contains("ts") || !event["ts"].is_number()) continue;
      event["pid"] = pid;
      event["ts"] = event["ts"].get<double>() + shift;
      events.push_back(std::move(event));
    }
  }
  return OrderedJson{{"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace millrace::jobs
