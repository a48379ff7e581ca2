#include "transpiler/distribute/report_html.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "framework/base/report_style.h"
#include "framework/types.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/units.h"

namespace millrace::transpiler {
namespace report_html_parts {
namespace {

// The shared rules of report pages, and those of this one.
std::string report_page_style() {
  std::string out;
  out += R"css(
:root{)css";
  out += report_style::kLightColors;
  out += R"css(--sat:48%;--l1:62%;--l2:84%;--hot:#b3261e}
@media(prefers-color-scheme:dark){:root{)css";
  out += report_style::kDarkColors;
  out += R"css(--sat:38%;--l1:46%;--l2:28%;--hot:#ff8a80}}
)css";
  out += report_style::kBodyRules;
  out += R"css(main{max-width:1180px;margin:auto})css";
  out += report_style::kHeadingRules;
  out += R"css(p{margin:4px 0;color:var(--dim)}
)css";
  out += report_style::kCardRules;
  out += R"css(
.tall{max-height:560px;overflow:auto;padding:0}svg{display:block}svg text{font:11px system-ui,sans-serif;fill:var(--text);pointer-events:none}
svg .axis{fill:var(--dim)}svg .grid{stroke:var(--line)}svg .mean{stroke:var(--hot);stroke-dasharray:5 4;stroke-width:1.5}
svg rect{stroke:var(--card);stroke-width:.8}svg g:hover rect{stroke:var(--text);stroke-width:1.5}
.param rect{fill:hsl(var(--hue) var(--sat) var(--l1))}.state rect{fill:hsl(var(--hue) var(--sat) var(--l2))}.thin rect{fill:var(--dim)}
)css";
  out += report_style::kTableRules;
  out +=
      R"css(th{position:sticky;top:0;background:var(--card);color:var(--dim);font-weight:600;font-size:12px}tr:last-child td{border-bottom:0}
th:first-child,td:first-child,.l{text-align:left}td:first-child{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12.5px}
tfoot th{border-top:1px solid var(--line);border-bottom:0;position:static}.hot{color:var(--hot);font-weight:600})css";
  out += report_style::kLegendRule;
  out += R"css(
)css";
  out += report_style::kKeyRule;
  out += R"css(
input{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:6px 10px;width:300px;margin:0 12px 8px 0}
)css";
  return out;
}

// Hides the rows whose text does not contain the words of the search box.
constexpr const char* kScript = R"js(
const box=document.getElementById('q'),rows=[...document.querySelectorAll('#vars tbody tr')],count=document.getElementById('n');
const text=rows.map(r=>r.textContent.toLowerCase());
function search(){const words=box.value.toLowerCase().split(/\s+/).filter(Boolean);let shown=0;
rows.forEach((r,i)=>{const hit=words.every(w=>text[i].includes(w));r.hidden=!hit;shown+=hit});
count.textContent=shown+' of '+rows.length}
box.addEventListener('input',search);search();
)js";

std::string card(const std::string& value, const char* label) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", html_text(value),
                     label);
}

std::string summary_cards(const ProgramProperties& properties, const VarsDistributed& overview,
                          const CostReport* cost) {
  double total = 0;
  std::vector<double> shares;
  for (const ServerBytes& server : bytes_by_server(properties, overview)) {
    shares.push_back(static_cast<double>(server.bytes()));
    total += shares.back();
  }
  double even = imbalance(shares);
  // The cost model also knows distributed tables, which are not in the overview.
  for (const LoadSummary& load : cost != nullptr ? cost->loads : std::vector<LoadSummary>()) {
    if (load.name != "held") continue;
    total = load.total;
    even = load.imbalance;
  }
  std::string out = "<div class=\"cards\">\n";
  out += card(std::to_string(properties.endpoints.size()), "servers");
  if (cost != nullptr) out += card(std::to_string(cost->trainers), "trainers");
  out += card(std::to_string(slices_by_origin(overview).size()), "variables on servers");
  out += card(std::to_string(overview.vars().size()), "slices");
  out += card(bytes_text(total), "held in total");
  out += card(fmt::format("{:.2f}", even), "max / mean of bytes held");
  if (cost != nullptr) out += card(seconds_text(cost->floor_s), "min. step time");
  return out + "</div>\n";
}

// A table cell, highlighted if the value is a hot spot.
std::string load_cell(const std::string& text, bool hot) {
  return fmt::format("<td{}>{}</td>", hot ? " class=\"hot\"" : "", text);
}

std::string cost_section(const CostReport& cost) {
  std::string out = fmt::format(
      "<h2>Load of one step</h2>\n<p>All trainers together; {}; each trainer touches {} rows of a "
      "table. Red: more than {:.2f} times the mean.</p>\n<div class=\"box tall\"><table><thead><tr>"
      "<th>server</th><th>slices</th><th>held</th><th>in</th><th>out</th><th>work</th>"
      "<th>floor</th><th class=\"l\">most traffic by</th></tr></thead><tbody>\n",
      cost.sync ? "gradients are merged into one update" : "every gradient is an update",
      cost.options.sparse_rows_per_step, cost.options.hot_factor);
  std::set<std::pair<int32_t, std::string>> hot;
  for (const HotSpot& spot : cost.hot_spots) hot.insert({spot.server, spot.load});
  for (size_t i = 0; i < cost.servers.size(); ++i) {
    const ServerCost& server = cost.servers[i];
    const auto is_hot = [&](const char* load) {
      return hot.count({static_cast<int32_t>(i), load}) != 0;
    };
    out += fmt::format("<tr><td>{}</td><td>{}</td>", html_text(server.endpoint), server.slices);
    out += load_cell(bytes_text(server.held_bytes), is_hot("held"));
    out += load_cell(bytes_text(server.in_bytes), is_hot("in"));
    out += load_cell(bytes_text(server.out_bytes), is_hot("out"));
    out += load_cell(flops_text(server.flops), is_hot("flops"));
    out += fmt::format("<td>{}</td><td class=\"l\">{}</td></tr>\n", seconds_text(server.floor_s),
                       html_text(server.largest));
  }
  out += "</tbody><tfoot><tr><th>max / mean</th><th></th>";
  for (const LoadSummary& load : cost.loads) out += fmt::format("<th>{:.2f}</th>", load.imbalance);
  return out + "<th></th><th></th></tr></tfoot></table></div>\n";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t dim : shape) out += (out.empty() ? "" : " × ") + std::to_string(dim);
  return out.empty() ? "scalar" : out;
}

// Endpoints of the slices, the first few.
std::string places_text(const OriginSlices& origin) {
  constexpr size_t kShown = 4;
  std::string out;
  for (size_t i = 0; i < std::min(kShown, origin.slices.size()); ++i) {
    out += (i == 0 ? "" : ", ") + origin.slices[i]->endpoint;
  }
  if (origin.slices.size() > kShown)
    out += fmt::format(" and {} more", origin.slices.size() - kShown);
  return html_text(out);
}

std::string variables_section(const VarsDistributed& overview) {
  std::string out =
      "<h2>Variables</h2>\n<input id=\"q\" type=\"search\" placeholder=\"search: name, kind, "
      "server\" aria-label=\"search variables\"><span id=\"n\"></span>\n<div class=\"box tall\">"
      "<table id=\"vars\"><thead><tr><th>name</th><th class=\"l\">kind</th><th>type</th>"
      "<th>shape</th><th>bytes</th><th>slices</th><th "
      "class=\"l\">servers</th></tr></thead><tbody>\n";
  for (const OriginSlices& origin : slices_by_origin(overview)) {
    const std::string_view dtype = dtype_name(static_cast<DType>(origin.origin.dtype));
    out += fmt::format(
        "<tr><td>{}</td><td class=\"l\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td class=\"l\">{}</td></tr>\n",
        html_text(origin.origin.name), html_text(origin.vtype), dtype,
        shape_text(origin.origin.shape),
        bytes_text(static_cast<double>(slice_bytes(origin.origin))), origin.slices.size(),
        places_text(origin));
  }
  return out + "</tbody></table></div>\n<script>" + kScript + "</script>\n";
}

std::string picture_section(const ProgramProperties& properties, const VarsDistributed& overview) {
  return "<h2>Slices by server</h2>\n<div class=\"legend\"><span><i class=\"key\" style=\""
         "background:hsl(210 var(--sat) var(--l1))\"></i>parameter</span><span><i class=\"key\" "
         "style=\"background:hsl(210 var(--sat) var(--l2))\"></i>its optimizer state</span><span>"
         "<i class=\"key\" style=\"background:var(--dim)\"></i>slices too small to draw</span>"
         "<span>dashed: mean</span><span>heights are bytes; hover for details</span></div>\n"
         "<div class=\"box\">\n" +
         slices_svg(properties, overview) + "</div>\n";
}

}  // namespace
}  // namespace report_html_parts

std::string report_html(const ProgramProperties& properties, const VarsDistributed& overview,
                        const CostReport* cost) {
  using namespace report_html_parts;
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<title>Distribution "
      "report</title>\n<style>";
  out += report_page_style();
  out += "</style></head><body><main>\n<h1>Distribution report</h1>\n";
  if (properties.endpoints.empty() || overview.vars().empty()) {
    out += "<p>No variable is on a server in this mode: every trainer holds all of them.</p>\n";
    return out + "</main></body></html>\n";
  }
  out += "<p>What each server holds and what a step costs it.</p>\n";
  out += summary_cards(properties, overview, cost);
  out += picture_section(properties, overview);
  if (cost != nullptr) out += cost_section(*cost);
  out += variables_section(overview);
  return out + "</main></body></html>\n";
}

}  // namespace millrace::transpiler
