#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/block.h"

namespace millrace::transpiler {

/// What a program does to the gradient of an embedding before the update, where the servers can do
/// it row by row: clipping by value, then regularization.
struct RowTerms {
  std::optional<float> clip_min;
  std::optional<float> clip_max;
  float l1 = 0;          ///< times the sign of the weight, added to its gradient
  float l2 = 0;          ///< times the weight, added to its gradient
  std::string gradient;  ///< what workers push: the gradient before these ops
  std::vector<Op*> ops;  ///< in no order
};

/// Follows the gradient of an update backwards. Ops that are none of these end the search, and are
/// not in the result; nor are any if another op uses what they compute.
RowTerms find_row_terms(const Block& block, const Op& update);

}  // namespace millrace::transpiler
