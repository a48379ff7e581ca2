#include "framework/diff/report.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>

#include "framework/base/html.h"
#include "framework/base/json_writer.h"

namespace millrace {
namespace {

llvm::ArrayRef<Difference> shown(const DiffReport& report) {
  const llvm::ArrayRef<Difference> all = report.differences;
  return report.limit == 0 ? all : all.take_front(report.limit);
}

constexpr const char* kDiffStyle = R"(
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem; color: #1c2330; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem; border-bottom: 1px solid #d8dde6; }
td { font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere; }
td.a { background: #fdecec; } td.b { background: #e9f7ec; } td:empty { background: none; }
)";

}  // namespace

std::string diff_text(const DiffReport& report) {
  std::string out;
  const llvm::ArrayRef<Difference> lines = shown(report);
  for (const Difference& difference : lines) out += difference.to_string() + "\n";
  if (lines.size() < report.differences.size())
    out += fmt::format("... {} more differences\n", report.differences.size() - lines.size());
  return out;
}

std::string diff_json(const DiffReport& report) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.diff").member("version", 1);
  out.end_object().member("a", report.name_a).member("b", report.name_b);
  out.member("same", report.differences.empty());
  out.member("count", static_cast<int64_t>(report.differences.size()));
  out.key("differences").begin_array();
  for (const Difference& difference : shown(report)) {
    out.begin_object();
    if (difference.block >= 0) out.member("block", difference.block);
    if (difference.op_a >= 0) out.member("op_index_a", difference.op_a);
    if (difference.op_b >= 0) out.member("op_index_b", difference.op_b);
    if (!difference.op_type.empty()) out.member("op_type", difference.op_type);
    out.member("what", difference.what);
    out.member("a", difference.a).member("b", difference.b).end_object();
  }
  return out.end_array().end_object().take();
}

std::string diff_html(const DiffReport& report) {
  std::string body =
      fmt::format("<h1>{} differences</h1>\n<p>{} &rarr; {}</p>\n", report.differences.size(),
                  html_escaped(report.name_a), html_escaped(report.name_b));
  body +=
      "<table><thead><tr><th>block</th><th>op</th><th>type</th><th>what</th><th>first</th>"
      "<th>second</th></tr></thead><tbody>\n";
  const auto number = [](int64_t value) { return value < 0 ? "" : std::to_string(value); };
  for (const Difference& d : shown(report)) {
    const std::string op = d.op_a == d.op_b || d.op_a < 0 || d.op_b < 0
                               ? number(std::max(d.op_a, d.op_b))
                               : number(d.op_a) + " &rarr; " + number(d.op_b);
    body += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"a\">{}</td>"
        "<td class=\"b\">{}</td></tr>\n",
        number(d.block), op, html_escaped(d.op_type), html_escaped(d.what), html_escaped(d.a),
        html_escaped(d.b));
  }
  body += "</tbody></table>\n";
  return html_page("diff-program", kDiffStyle, body, "");
}

}  // namespace millrace
