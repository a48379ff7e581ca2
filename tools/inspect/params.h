#pragma once

#include <string>
#include <vector>

#include "jobs/inspect/param_facts.h"

/// What inspect-program --params and checkpoint show print of parameters.
namespace millrace::tools {

/// A table with one line per parameter, and a line with the totals.
std::string params_text(const std::vector<jobs::ParamFacts>& facts);

/// The same as JSON; schema "millrace.params". \param path  as the user gave it
std::string params_json(const std::vector<jobs::ParamFacts>& facts, const std::string& path);

}  // namespace millrace::tools
