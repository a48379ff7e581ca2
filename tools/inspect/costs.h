#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/program.h"
#include "ops/registry.h"

/// inspect-program --flops and --memory: the cost of one run of a program, estimated from declared
/// dims.
namespace millrace::tools {

/// Work of all ops of one type.
struct TypeCost {
  std::string type;
  int64_t count = 0;
  double flops = 0;
  double bytes_out = 0;  ///< bytes that the ops write
};

/// Unknown dims count as 1 (fill_unknown_dims() sets them); bodies of loops and branches count
/// once. Sizes in bytes.
struct ProgramCosts {
  std::vector<TypeCost> types;  ///< most flops first, then by name
  double flops = 0;
  double stored_bytes = 0;     ///< parameters and other stored vars
  double temporary_bytes = 0;  ///< all other tensors, if they did not share memory
  /// Maximum of the bytes of temporaries that are live at the same time. A temporary is live from
  /// the first op of block 0 that accesses it to the last. Also the op at which the maximum is
  /// reached, and the largest temporaries there, at most 8.
  double peak_bytes = 0;
  int64_t peak_op = -1;
  std::vector<std::pair<std::string, double>> largest;
};

/// Takes time linear in the size of the program.
ProgramCosts program_costs(const Program& program, const ops::OpRegistry& registry);

/// Sets every unknown dim of every var to n, for example a batch size. \param n  >= 1
void fill_unknown_dims(Program& program, int64_t n);

/// The requested tables as text. \param unknown  size that unknown dims count as
std::string costs_text(const ProgramCosts& costs, bool flops, bool memory, int64_t unknown);
/// All of it as one JSON object with the schema "millrace.costs".
std::string costs_json(const ProgramCosts& costs, const std::string& file, int64_t unknown);

/// CSV with one line per op: block,op,type,inputs,outputs,dims of the outputs,flops,bytes written;
/// the first line has the column names. Fields are quoted where RFC 4180 requires it.
std::string ops_csv(const Program& program, const ops::OpRegistry& registry);

}  // namespace millrace::tools
