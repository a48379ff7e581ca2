#pragma once

#include <cstddef>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::ps {

/// The instance that each id belongs to, by position of the id: the sequence of the innermost level
/// of the LoD that its row is in, or without a LoD its row.
/// \param ids  [rows, ...] i64, or a single id without dims
/// Errors: kInvalidData for a LoD of other rows, which an op may hand on.
StatusOr<std::vector<size_t>> instances_of(const Tensor& ids);

}  // namespace millrace::ps
