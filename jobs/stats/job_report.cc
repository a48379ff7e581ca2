#include "jobs/stats/job_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/html.h"
#include "framework/base/report_style.h"
#include "jobs/config/slices_file.h"
#include "jobs/stats/fleet_servers.h"
#include "jobs/stats/loss_curve.h"
#include "transpiler/distribute/units.h"

namespace millrace::jobs {
namespace {

// The shared rules of report pages, and those of this one.
std::string page_style() {
  std::string out;
  out += R"css(
:root{)css";
  out += report_style::kLightColors;
  out += R"css(--compute:#3b6ea8;--send:#d08a2e;--wait:#b9c0c9;--param:#3b6ea8;--state:#9fb9d6}
@media(prefers-color-scheme:dark){:root{)css";
  out += report_style::kDarkColors;
  out += R"css(--compute:#6f9fd8;--send:#e0a85a;--wait:#4a525d;--param:#6f9fd8;--state:#3d5875}}
)css";
  out += report_style::kBodyRules;
  out += R"css(main{max-width:1080px;margin:auto})css";
  out += report_style::kHeadingRules;
  out += R"css(
)css";
  out += report_style::kCardRules;
  out += R"css(.plot{background:#fff}
)css";
  out += report_style::kTableRules;
  out +=
      R"css(th{color:var(--dim);font-weight:600;font-size:12px}tr:last-child td{border-bottom:0}th:first-child,td:first-child{text-align:left}td.bar{width:45%}
.bar div{display:flex;height:14px;border-radius:3px;overflow:hidden;background:var(--line)}.bar i{display:block;height:100%}
.compute{background:var(--compute)}.send{background:var(--send)}.wait{background:var(--wait)}.param{background:var(--param)}.state{background:var(--state)}
)css";
  out += report_style::kLegendRule;
  out += report_style::kKeyRule;
  out += R"css(
)css";
  return out;
}

std::string card(const std::string& value, const char* label) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", html_escaped(value),
                     label);
}

std::string key(const char* style, const char* label) {
  return fmt::format("<span><span class=\"key {}\"></span>{}</span>", style, label);
}

// Segments of a bar; `whole` is the full length.
std::string bar(const std::vector<std::pair<const char*, double>>& parts, double whole) {
  std::string out = "<td class=\"bar\"><div>";
  for (const auto& [style, amount] : parts) {
    out += fmt::format("<i class=\"{}\" style=\"width:{:.2f}%\"></i>", style,
                       whole > 0 ? 100 * amount / whole : 0.0);
  }
  return out + "</div></td>";
}

double longest(const std::vector<TrainerStats>& trainers) {
  double seconds = 0;
  for (const TrainerStats& stats : trainers) seconds = std::max(seconds, stats.seconds);
  return seconds;
}

int64_t examples_of(const std::vector<TrainerStats>& trainers) {
  int64_t examples = 0;
  for (const TrainerStats& stats : trainers) examples += stats.examples;
  return examples;
}

double rate_of(const std::vector<TrainerStats>& trainers) {
  const double seconds = longest(trainers);
  return seconds > 0 ? static_cast<double>(examples_of(trainers)) / seconds : 0;
}

// Means of the first and of the last tenth of the losses, each of at least one loss.
std::pair<double, double> first_and_last(const std::vector<double>& losses) {
  const size_t part = std::max<size_t>(losses.size() / 10, 1);
  double first = 0;
  double last = 0;
  for (size_t i = 0; i < part; ++i) {
    first += losses[i] / static_cast<double>(part);
    last += losses[losses.size() - part + i] / static_cast<double>(part);
  }
  return {first, last};
}

std::string trainer_table(const std::vector<TrainerStats>& trainers) {
  std::string out =
      "<h2>Time of each trainer</h2>\n<div class=\"legend\">" + key("compute", "compute") +
      key("send", "send") + key("wait", "wait") +
      "</div>\n<div class=\"box\"><table><tr><th>trainer</th><th>steps</th>"
      "<th>examples/s</th><th>compute s</th><th>send s</th><th>wait s</th><th></th></tr>\n";
  const double most = longest(trainers);
  for (const TrainerStats& stats : trainers) {
    const double rate = stats.seconds > 0 ? static_cast<double>(stats.examples) / stats.seconds : 0;
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.0f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td>{}</"
        "tr>\n",
        stats.trainer, stats.steps, rate, stats.compute_seconds, stats.send_seconds,
        stats.wait_seconds,
        bar({{"compute", stats.compute_seconds},
             {"send", stats.send_seconds},
             {"wait", stats.wait_seconds}},
            most));
  }
  return out + "</table></div>\n";
}

std::string server_table(const JobServers& job) {
  const std::vector<transpiler::ServerBytes>& servers = job.servers;
  std::string out = "<h2>Memory of each server</h2>\n<div class=\"legend\">" +
                    key("param", "parameters") + key("state", "optimizer state") +
                    "</div>\n<div class=\"box\"><table><tr><th>server</th><th>" + job.unit +
                    "</th><th>parameters</th><th>state</th><th></th></tr>\n";
  double most = 0;
  for (const auto& server : servers) most = std::max(most, static_cast<double>(server.bytes()));
  for (const auto& server : servers) {
    const auto param = static_cast<double>(server.param_bytes);
    const auto state = static_cast<double>(server.state_bytes);
    out +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>\n",
                    html_escaped(server.endpoint), server.slices, transpiler::bytes_text(param),
                    transpiler::bytes_text(state), bar({{"param", param}, {"state", state}}, most));
  }
  return out + "</table></div>\n";
}

std::string cards(const std::vector<TrainerStats>& trainers, size_t servers,
                  const std::vector<double>& losses) {
  std::string out = "<div class=\"cards\">\n";
  out += card(fmt::format("{} x {}", trainers.size(), servers), "trainers x servers");
  out += card(fmt::format("{}", examples_of(trainers)), "examples");
  out += card(fmt::format("{:.0f}", rate_of(trainers)), "examples per second");
  out += card(transpiler::seconds_text(longest(trainers)), "slowest trainer");
  if (!losses.empty()) {
    const auto [first, last] = first_and_last(losses);
    out += card(fmt::format("{:.3f} \u2192 {:.3f}", first, last), "loss, first and last tenth");
  }
  return out + "</div>\n";
}

}  // namespace

std::vector<double> mean_losses(const std::vector<TrainerStats>& trainers) {
  size_t steps = trainers.empty() ? 0 : trainers.front().losses.size();
  for (const TrainerStats& stats : trainers) steps = std::min(steps, stats.losses.size());
  std::vector<double> means(steps, 0.0);
  for (const TrainerStats& stats : trainers) {
    for (size_t i = 0; i < steps; ++i)
      means[i] += stats.losses[i] / static_cast<double>(trainers.size());
  }
  return means;
}

std::string job_summary(const std::vector<TrainerStats>& trainers) {
  const std::vector<double> losses = mean_losses(trainers);
  std::string out;
  if (!losses.empty()) {
    const auto [first, last] = first_and_last(losses);
    out = fmt::format("loss {:.3f} -> {:.3f}, ", first, last);
  }
  return out + fmt::format("{} trainers, {} examples, {:.0f} examples/s", trainers.size(),
                           examples_of(trainers), rate_of(trainers));
}

std::string job_report_html(const std::string& title, const JobServers& job,
                            const std::vector<TrainerStats>& trainers) {
  const std::vector<double> losses = mean_losses(trainers);
  std::string body = fmt::format("<main>\n<h1>{}</h1>\n", html_escaped(title));
  body += cards(trainers, job.servers.size(), losses);
  if (!losses.empty()) {
    body += "<h2>Loss, mean of the trainers</h2>\n<div class=\"box plot\">" +
            loss_curve_svg(trainers.front().loss_name, losses) + "</div>\n";
  }
  body += trainer_table(trainers) + server_table(job) + "</main>\n";
  return html_page(title, page_style(), body, "");
}

StatusOr<JobServers> servers_of(const std::string& folder) {
  if (is_fleet_folder(folder)) {
    MILLRACE_ASSIGN_OR_RETURN(auto servers, fleet_servers(folder));
    return JobServers{std::move(servers), "tables"};
  }
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::SlicesFile slices,
                            read_slices(folder + "/slices.json"));
  return JobServers{transpiler::bytes_by_server(slices.properties, slices.overview), "slices"};
}

StatusOr<std::string> make_job_report(const std::string& folder,
                                      const std::vector<TrainerStats>& trainers) {
  MILLRACE_ASSIGN_OR_RETURN(const JobServers job, servers_of(folder));
  std::vector<TrainerStats> sorted = trainers;
  std::ranges::sort(sorted, {}, &TrainerStats::trainer);
  const auto twice = std::ranges::adjacent_find(sorted, {}, &TrainerStats::trainer);
  if (twice != sorted.end())
    return InvalidData("the statistics of trainer {} are given twice", twice->trainer);
  return job_report_html("Parameter-server job: " + folder, job, sorted);
}

}  // namespace millrace::jobs
