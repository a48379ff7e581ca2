#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/status.h"
#include "ps/table/table.h"
#include "ps/values.h"

/// Names of the tensors of a table's state (Table::state()) in snapshots, and reading them.
namespace millrace::ps {

inline constexpr const char* kKeysPart = "keys";                 ///< i64 [n]
inline constexpr const char* kRowsPart = "rows";                 ///< f32 [n, floats of a row]
inline constexpr const char* kWaitingKeysPart = "waiting_keys";  ///< keys not admitted yet; i64 [w]
inline constexpr const char* kWaitingCountsPart = "waiting_counts";  ///< their accesses; f32 [w]
/// Random draws made; i64 [partitions], or of another length: the most of any partition.
inline constexpr const char* kDrawsPart = "draws";

inline constexpr const char* kRatePart = "rate";    ///< of RateTable; f32 [1]
inline constexpr const char* kStepsPart = "steps";  ///< of TensorTable; i64 [trainers]

/// The elements of a tensor of a state. \param count  expected; kAnyCount: any
/// Errors: kInvalidData for a tensor that is missing, or of another type or size.
inline constexpr size_t kAnyCount = ~size_t{0};
template <typename T>
StatusOr<std::span<const T>> state_part(const TableState& state, const std::string& name,
                                        DType dtype, size_t count) {
  const auto found = state.find(name);
  const Tensor* const tensor =
      found == state.end() ? nullptr : found->second.template get_if<Tensor>();
  if (tensor == nullptr || tensor->dtype() != dtype ||
      (count != kAnyCount && static_cast<size_t>(tensor->numel()) != count)) {
    return InvalidData("state '{}' of a table: expected {} elements, found {}", name,
                       count == kAnyCount ? std::string("any number of") : std::to_string(count),
                       found == state.end() ? "nothing" : describe(found->second));
  }
  return tensor->template values<T>();
}

}  // namespace millrace::ps
