#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/table/dense_updates.h"

namespace millrace::fleet_desc {
class CommonAccessorParameter;
}

namespace millrace::fleet {

/// The op that updates a table, where the rules of tables do not: nullptr for sgd, for adam whose
/// state starts as usual, and for tables without an optimizer op (sum, summary, adam_d2sum).
/// Errors: kInvalidArgument for a description whose states do not fit the op.
StatusOr<std::shared_ptr<const ps::UpdateOp>> described_update(
    const fleet_desc::CommonAccessorParameter& table);

/// The updates of a dense table by ranges; empty: its rule updates all of it. Errors: as above.
StatusOr<std::vector<ps::DenseUpdate>> described_ranges(
    const fleet_desc::CommonAccessorParameter& table, int64_t elements);

/// The value of a key in text such as "beta1&0.9#beta2&0.999"; `fallback` if the text lacks the
/// key. Errors: kInvalidArgument if the value is no number.
StatusOr<float> described_attr(const std::string& attrs, const std::string& key, float fallback);

}  // namespace millrace::fleet
