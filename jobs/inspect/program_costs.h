#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/program.h"
#include "ops/registry.h"

/// The cost of one run of a program, estimated from declared dims. Thread-safety: pure, but for
/// fill_unknown_dims().
namespace millrace::jobs {

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

/// Bytes of the outputs of an op, as its program declares them.
double output_bytes(const Op& op);

/// The costs of a program. Takes time linear in its size.
ProgramCosts program_costs(const Program& program, const ops::OpRegistry& registry);

/// Sets every unknown dim of every var to n, for example a batch size. \param n  >= 1
void fill_unknown_dims(Program& program, int64_t n);

}  // namespace millrace::jobs
