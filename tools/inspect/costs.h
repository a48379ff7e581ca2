#pragma once

#include <cstdint>
#include <string>

#include "jobs/inspect/program_costs.h"

/// What inspect-program --flops, --memory and --format csv print.
namespace millrace::tools {

/// The requested tables as text. \param unknown  size that unknown dims count as
std::string costs_text(const jobs::ProgramCosts& costs, bool flops, bool memory, int64_t unknown);
/// All of it as one JSON object with the schema "millrace.costs".
std::string costs_json(const jobs::ProgramCosts& costs, const std::string& file, int64_t unknown);

/// CSV with one line per op: block,op,type,inputs,outputs,dims of the outputs,flops,bytes written;
/// the first line has the column names. Fields are quoted where RFC 4180 requires it.
std::string ops_csv(const Program& program, const ops::OpRegistry& registry);

}  // namespace millrace::tools
