#pragma once

#include <string>

#include "framework/block.h"

/// Recognizes what belongs to the update of an embedding that servers carry out.
namespace millrace::transpiler {

/// True for an op that updates a power of a decay rate, which older releases emit as a scale after
/// the update. Tables count steps themselves.
bool is_power_update(const Op& op, const Op& update);

/// Removes clipping by value and regularization of an embedding's gradient (row_terms.h): the
/// servers do both when they update a row.
void leave_terms_to_servers(Block& block, const std::string& param);

}  // namespace millrace::transpiler
