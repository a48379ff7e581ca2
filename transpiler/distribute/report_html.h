#pragma once

#include <string>

#include "transpiler/distribute/cost_model.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

/// report.html: a page that shows a distribution.
namespace millrace::transpiler {

/// One self-contained page, without external scripts or fonts: a column per server with its slices
/// drawn to scale (details on hover), loads per server and step, hot spots, and a table of all
/// variables with search. Names are escaped.
///
/// \param cost  null: the page does not show traffic and work
std::string report_html(const ProgramProperties& properties, const VarsDistributed& overview,
                        const CostReport* cost);

/// Only the picture, as an SVG element. In each column, slices too thin to see are drawn as one.
std::string slices_svg(const ProgramProperties& properties, const VarsDistributed& overview);

/// Escapes text for use between HTML tags and in double-quoted attributes; control characters
/// become \xHH.
std::string html_text(std::string_view text);

}  // namespace millrace::transpiler
