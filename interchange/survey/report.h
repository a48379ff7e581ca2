#pragma once

#include <string>
#include <vector>

#include "interchange/survey/survey.h"

/// What survey() found, as text for terminals, JSON and an HTML page.
namespace millrace::interchange {

/// What a report is about.
struct Report {
  std::string folder;                ///< as the user named it; paths are shown relative to it
  std::vector<std::string> targets;  ///< names of SurveyOptions::targets
  std::vector<SurveyedProgram> programs;
};

/// A line per program with its kind, release, number of ops and the verdicts, and below it the
/// reasons of each "no"; then the totals. Escaped for terminals.
std::string report_text(const Report& report);

/// The same with all details. Keys: "folder", "programs" (a list; "path", "error" or "kind",
/// "release", "blocks", "ops", "op_types", "inputs", "outputs", "parameters" {"count", "path",
/// "error"}, "upgrades" {"count", "first"}, "runs"
/// and one key for each target: {"answer": "yes", "no", "unknown" or "not meant", "reasons"}).
std::string report_json(const Report& report);

/// A self-contained page with the table of report_text(); details open on a click.
std::string report_html(const Report& report);

}  // namespace millrace::interchange
