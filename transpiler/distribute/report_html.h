#pragma once

#include <string>

#include "transpiler/distribute/cost_model.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

/// report.html: a picture of a distribution.
namespace millrace::transpiler {

/// One self-contained page, without scripts or fonts from elsewhere: a column per server with its
/// slices drawn to scale (details on hover), loads per server and step, hot spots, and a table of
/// all variables with search. Names are escaped.
///
/// \param cost  null: the page says nothing of traffic and work
std::string report_html(const ProgramProperties& properties, const VarsDistributed& overview,
                        const CostReport* cost);

/// The picture alone: an SVG element. Slices too thin to see are drawn as one per column.
std::string slices_svg(const ProgramProperties& properties, const VarsDistributed& overview);

/// Text that may stand in HTML, between tags and in double-quoted attributes; control characters
/// become \xHH.
std::string html_text(std::string_view text);

}  // namespace millrace::transpiler
