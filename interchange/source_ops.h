#pragma once

#include <cstdint>
#include <vector>

#include "interchange/op_reader.h"

/// What ops of the original mean, for converters into every format.
namespace millrace::interchange {

/// Where an operand of less dims is in the other one.
struct Alignment {
  bool is_x = false;          ///< the smaller operand is X, not Y
  std::vector<int64_t> axes;  ///< axes of extent 1 that it lacks at its end, in order
};

/// Reads `axis` of an op with operands X and Y: the smaller one starts at this axis of the larger
/// one. The formats align operands at the end. Errors: refusal of an axis that does not fit.
StatusOr<Alignment> read_alignment(OpReader& c);

/// Reads the attributes of a table of rows. Errors: refusal of a table on other servers.
Status read_table_attrs(OpReader& c);

}  // namespace millrace::interchange
