#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "transpiler/distribute/cost_model.h"
#include "transpiler/distribute/units.h"

namespace millrace::transpiler {
namespace {

constexpr size_t kMaxHotSpots = 8;

std::string amount(const std::string& load, double value) {
  return load == "flops" ? flops_text(value) : bytes_text(value);
}

// The slowest servers, slowest first, at most `most`.
std::vector<size_t> slowest_servers(const CostReport& report, size_t most) {
  std::vector<size_t> order(report.servers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order.size() <= most) return order;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return report.servers[a].floor_s > report.servers[b].floor_s;
  });
  order.resize(most);
  return order;
}

}  // namespace

std::string cost_table(const CostReport& report, size_t max_servers) {
  std::string out = fmt::format(
      "{} server{}, {} trainer{}, {}; per step of all trainers, tables at {} rows per trainer\n\n",
      report.servers.size(), report.servers.size() == 1 ? "" : "s", report.trainers,
      report.trainers == 1 ? "" : "s", report.sync ? "merged updates" : "one update per trainer",
      report.options.sparse_rows_per_step);
  out +=
      fmt::format("{:<6} {:>11} {:>11} {:>11} {:>9}\n", "load", "total", "mean", "max", "max/mean");
  for (const LoadSummary& load : report.loads) {
    out += fmt::format("{:<6} {:>11} {:>11} {:>11} {:>9.2f}\n", load.name,
                       amount(load.name, load.total), amount(load.name, load.mean),
                       amount(load.name, load.max), load.imbalance);
  }
  out += fmt::format("\nlower bound of the step time: {} ({}/s per server and direction, {}/s)\n",
                     seconds_text(report.floor_s), bytes_text(report.options.network_bytes_per_s),
                     flops_text(report.options.flops_per_s));
  for (size_t i = 0; i < std::min(report.hot_spots.size(), kMaxHotSpots); ++i) {
    const HotSpot& spot = report.hot_spots[i];
    const ServerCost& server = report.servers[static_cast<size_t>(spot.server)];
    out += fmt::format("hot: {} has {:.2f} times the mean of '{}'{}\n", printable(server.endpoint),
                       spot.factor, spot.load,
                       server.largest.empty() ? "" : ", mostly from " + printable(server.largest));
  }
  if (report.hot_spots.size() > kMaxHotSpots) {
    out += fmt::format("hot: {} more\n", report.hot_spots.size() - kMaxHotSpots);
  }
  size_t width = 8;
  const std::vector<size_t> shown = slowest_servers(report, max_servers);
  for (const size_t i : shown)
    width = std::max(width, printable(report.servers[i].endpoint).size());
  out += fmt::format("\n{:<{}} {:>6} {:>11} {:>11} {:>11} {:>11} {:>9}\n", "server", width,
                     "slices", "held", "in", "out", "flops", "floor");
  for (const size_t i : shown) {
    const ServerCost& server = report.servers[i];
    out += fmt::format(
        "{:<{}} {:>6} {:>11} {:>11} {:>11} {:>11} {:>9}\n", printable(server.endpoint), width,
        server.slices, bytes_text(server.held_bytes), bytes_text(server.in_bytes),
        bytes_text(server.out_bytes), flops_text(server.flops), seconds_text(server.floor_s));
  }
  if (shown.size() < report.servers.size()) {
    out += fmt::format("... and {} faster ones\n", report.servers.size() - shown.size());
  }
  return out;
}

std::string cost_json(const CostReport& report) {
  using Json = nlohmann::ordered_json;
  Json loads = Json::object();
  for (const LoadSummary& load : report.loads) {
    loads[load.name] = {{"total", load.total},
                        {"mean", load.mean},
                        {"max", load.max},
                        {"imbalance", load.imbalance}};
  }
  Json hot = Json::array();
  for (const HotSpot& spot : report.hot_spots) {
    hot.push_back(Json{{"endpoint", report.servers[static_cast<size_t>(spot.server)].endpoint},
                       {"load", spot.load},
                       {"factor", spot.factor}});
  }
  Json servers = Json::array();
  for (const ServerCost& server : report.servers) {
    servers.push_back(Json{{"endpoint", server.endpoint},
                           {"slices", server.slices},
                           {"held_bytes", server.held_bytes},
                           {"in_bytes", server.in_bytes},
                           {"out_bytes", server.out_bytes},
                           {"flops", server.flops},
                           {"floor_s", server.floor_s},
                           {"largest", server.largest}});
  }
  const Json file{{"trainers", report.trainers},
                  {"sync", report.sync},
                  {"sparse_rows_per_step", report.options.sparse_rows_per_step},
                  {"network_bytes_per_s", report.options.network_bytes_per_s},
                  {"flops_per_s", report.options.flops_per_s},
                  {"floor_s", report.floor_s},
                  {"loads", std::move(loads)},
                  {"hot_spots", std::move(hot)},
                  {"servers", std::move(servers)}};
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace millrace::transpiler
