#include "interchange/survey/report.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>
#include <nlohmann/json.hpp>

#include "framework/base/html.h"
#include "framework/base/report_style.h"
#include "framework/base/text.h"

namespace millrace::interchange {
namespace {

const char* answer_text(Answer answer) {
  switch (answer) {
    case Answer::kYes:
      return "yes";
    case Answer::kNo:
      return "no";
    case Answer::kUnknown:
      return "unknown";
    case Answer::kNotMeant:
      return "not meant";
  }
  return "?";
}

std::string shown_path(const Report& report, const SurveyedProgram& program) {
  llvm::StringRef path = program.path;
  if (path.consume_front(report.folder)) path.consume_front("/");
  return path.empty() ? program.path : path.str();
}

std::string params_text(const SurveyedProgram& program) {
  if (program.param_count == 0) return "none";
  if (!program.params_status.ok())
    return fmt::format("{} not read ({})", program.param_count,
                       program.params_status.code() == StatusCode::kNotFound
                           ? "not next to the program"
                           : program.params_status.message());
  return fmt::format("{} in {}", program.param_count, program.params);
}

// The questions that a report answers about each program, with the answers.
std::vector<std::pair<std::string, const Verdict*>> verdicts(const Report& report,
                                                             const SurveyedProgram& program) {
  std::vector<std::pair<std::string, const Verdict*>> all{{"runs", &program.runs}};
  for (size_t i = 0; i < report.targets.size() && i < program.targets.size(); ++i)
    all.emplace_back(report.targets[i], &program.targets[i]);
  return all;
}

// "runs: 12 of 15" and the like.
std::vector<std::string> totals(const Report& report) {
  std::vector<std::string> lines;
  const auto total = [&](const std::string& what, const auto& verdict_of) {
    size_t good = 0;
    size_t asked = 0;
    for (const SurveyedProgram& program : report.programs) {
      if (!program.unreadable.ok()) continue;
      const Verdict* const verdict = verdict_of(program);
      asked += verdict->answer != Answer::kNotMeant ? 1 : 0;
      good += verdict->answer == Answer::kYes ? 1 : 0;
    }
    lines.push_back(fmt::format("{}: {} of {}", what, good, asked));
  };
  total("runs", [](const SurveyedProgram& program) { return &program.runs; });
  for (size_t i = 0; i < report.targets.size(); ++i)
    total(report.targets[i], [i](const SurveyedProgram& program) { return &program.targets[i]; });
  return lines;
}

void add_text(const Report& report, const SurveyedProgram& program, std::string& out) {
  const std::string path = printable(shown_path(report, program));
  if (!program.unreadable.ok()) {
    out += fmt::format("{}: no program: {}\n", path, printable(program.unreadable.message()));
    return;
  }
  out += fmt::format("{}: {}, release {}, {} ops, parameters {}", path, kind_text(program.kind),
                     program.release, program.ops, printable(params_text(program)));
  for (const auto& [what, verdict] : verdicts(report, program)) {
    if (verdict->answer != Answer::kNotMeant)
      out += fmt::format(", {} {}", what, answer_text(verdict->answer));
  }
  out += "\n";
  if (program.upgrade_count > 0)
    out += fmt::format("  upgrade-program makes {} changes\n", program.upgrade_count);
  for (const auto& [what, verdict] : verdicts(report, program)) {
    for (const std::string& reason : verdict->reasons)
      out += fmt::format("  {}: {}\n", what, printable(reason));
  }
}

nlohmann::ordered_json json_of(const Report& report, const SurveyedProgram& program) {
  nlohmann::ordered_json json{{"path", program.path}};
  if (!program.unreadable.ok()) {
    json["error"] = program.unreadable.message();
    return json;
  }
  json["kind"] = kind_text(program.kind);
  json["release"] = program.release;
  json["blocks"] = program.blocks;
  json["ops"] = program.ops;
  json["op_types"] = program.op_types;
  json["inputs"] = program.inputs;
  json["outputs"] = program.outputs;
  json["parameters"] = {{"count", program.param_count}, {"path", program.params}};
  if (!program.params_status.ok()) json["parameters"]["error"] = program.params_status.message();
  json["upgrades"] = {{"count", program.upgrade_count}, {"first", program.upgrades}};
  for (const auto& [what, verdict] : verdicts(report, program))
    json[what] = {{"answer", answer_text(verdict->answer)}, {"reasons", verdict->reasons}};
  return json;
}

std::string list(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = fmt::format("<h3>{}</h3><ul>", html_escaped(title));
  for (const std::string& line : lines) out += fmt::format("<li>{}</li>", html_escaped(line));
  return out + "</ul>";
}

std::string details(const Report& report, const SurveyedProgram& program) {
  std::string out = fmt::format("<p>{} blocks, {} ops, parameters: {}</p>", program.blocks,
                                program.ops, html_escaped(params_text(program)));
  for (const auto& [what, verdict] : verdicts(report, program))
    out +=
        list(what == "runs" ? "Does not run here" : "Not convertible to " + what, verdict->reasons);
  out += list("Changes by upgrade-program", program.upgrades);
  out += list("Inputs", program.inputs) + list("Outputs", program.outputs);
  std::vector<std::string> types;
  for (const auto& [type, count] : program.op_types)
    types.push_back(fmt::format("{} {}", count, type));
  return out + list("Op types", types);
}

std::string row(const Report& report, const SurveyedProgram& program) {
  const std::string path = html_escaped(shown_path(report, program));
  if (!program.unreadable.ok())
    return fmt::format("<tr><td>{}</td><td colspan=\"{}\">no program: {}</td></tr>\n", path,
                       4 + report.targets.size(), html_escaped(program.unreadable.message()));
  std::string out =
      fmt::format("<tr><td><details><summary>{}</summary>{}</details></td><td>{}</td><td>{}</td>",
                  path, details(report, program), kind_text(program.kind), program.release);
  for (const auto& [what, verdict] : verdicts(report, program)) {
    const char* const answer = answer_text(verdict->answer);
    out += verdict->answer == Answer::kNotMeant ? std::string("<td></td>")
                                                : fmt::format("<td class=\"{0}\">{0}</td>", answer);
  }
  return out + fmt::format("<td>{}</td></tr>\n", program.upgrade_count);
}

std::string page_style() {
  std::string out = ":root{";
  out += report_style::kLightColors;
  out += "--yes:#1d7a3d;--no:#b3261e}@media(prefers-color-scheme:dark){:root{";
  out += report_style::kDarkColors;
  out += "--yes:#63c384;--no:#f2998f}}\n";
  out += report_style::kBodyRules;
  out += report_style::kHeadingRules;
  out += "\n";
  out += report_style::kCardRules;
  out += "\n";
  out += report_style::kTableRules;
  out +=
      "th,td{text-align:left;vertical-align:top}td:first-child{white-space:normal;overflow-wrap:"
      "anywhere}"
      "h3{font-size:13px;margin:10px 0 2px}ul{margin:0;padding-left:18px}"
      "summary{cursor:pointer}.yes{color:var(--yes)}.no{color:var(--no);font-weight:600}.unknown{"
      "color:var(--dim)}\n";
  return out;
}

}  // namespace

std::string report_text(const Report& report) {
  std::string out;
  for (const SurveyedProgram& program : report.programs) add_text(report, program, out);
  out += fmt::format("{} files\n", report.programs.size());
  for (const std::string& line : totals(report)) out += line + "\n";
  return out;
}

std::string report_json(const Report& report) {
  nlohmann::ordered_json json{{"folder", report.folder},
                              {"programs", nlohmann::ordered_json::array()}};
  for (const SurveyedProgram& program : report.programs)
    json["programs"].push_back(json_of(report, program));
  // names in programs may be any bytes
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string report_html(const Report& report) {
  std::string body =
      fmt::format("<h1>Programs in {}</h1>\n<div class=\"cards\">", html_escaped(report.folder));
  body +=
      fmt::format("<div class=\"card\"><b>{}</b><span>files</span></div>", report.programs.size());
  for (const std::string& line : totals(report)) {
    const auto [what, count] = llvm::StringRef(line).split(": ");
    body += fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>", count.str(),
                        html_escaped(what.str()));
  }
  body +=
      "</div>\n<h2>Programs</h2>\n<div class=\"box\"><table><thead><tr><th>file</th>"
      "<th>kind</th><th>written by release</th><th>runs here</th>";
  for (const std::string& target : report.targets)
    body += fmt::format("<th>{}</th>", html_escaped(target));
  body += "<th>changes by upgrade-program</th></tr></thead><tbody>\n";
  for (const SurveyedProgram& program : report.programs) body += row(report, program);
  body += "</tbody></table></div>\n";
  return html_page("Programs in " + report.folder, page_style(), body, "");
}

}  // namespace millrace::interchange
