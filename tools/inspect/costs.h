#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/program.h"
#include "ops/registry.h"

/// inspect-program --flops and --memory: what one run of a program costs, from declared dims alone.
namespace millrace::tools {

/// Work of all ops of one type.
struct TypeCost {
  std::string type;
  int64_t count = 0;
  double flops = 0;
  double bytes_out = 0;  ///< of what the ops write
};

/// Unknown dims count as 1 (fill_unknown_dims() gives them a size); bodies of loops and branches
/// count once. Sizes in bytes.
struct ProgramCosts {
  std::vector<TypeCost> types;  ///< most flops first, then by name
  double flops = 0;
  double stored_bytes = 0;     ///< parameters and other stored vars
  double temporary_bytes = 0;  ///< all other tensors, if none shared memory
  /// Most bytes of temporaries alive at once, each from its first writer or reader in block 0 to
  /// its last; the op at which that is; the largest of them, 8 at most.
  double peak_bytes = 0;
  int64_t peak_op = -1;
  std::vector<std::pair<std::string, double>> largest;
};

/// Cost: linear in the program.
ProgramCosts program_costs(const Program& program, const ops::OpRegistry& registry);

/// Gives every unknown dim of every var the size n, for example a batch size. \param n  >= 1
void fill_unknown_dims(Program& program, int64_t n);

/// Tables for people, those that are asked for. \param unknown  size that unknown dims count as
std::string costs_text(const ProgramCosts& costs, bool flops, bool memory, int64_t unknown);
/// Everything as one JSON object with the schema "millrace.costs".
std::string costs_json(const ProgramCosts& costs, const std::string& file, int64_t unknown);

/// A line an op: block,op,type,inputs,outputs,dims of the outputs,flops,bytes written; the first
/// line names the columns. Fields are quoted where they need it (RFC 4180).
std::string ops_csv(const Program& program, const ops::OpRegistry& registry);

}  // namespace millrace::tools
