#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "io/checkpoint/gather.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/state.h"

/// Values that should be equal on all ranks and are not, such as the means of a batch norm that
/// each rank takes over its own rows.
namespace millrace::io {

/// "<name>@rank<r>": what rank r had under a name where it differed from the lowest rank's.
std::string name_of_rank(std::string_view name, int32_t rank);

/// The name under which a checkpoint has the value that a rank had: name_of_rank() where that is
/// there, else the name itself.
std::string stored_name(const Manifest& manifest, std::string_view name, int32_t rank);

/// Compares the whole values of all ranks by their checksums. Those that differ from the value of
/// the lowest rank that has the name get name_of_rank(), so that each is saved. A call on every
/// rank. \returns a state that refers to the same values
/// Errors: kInvalidArgument with the var for a value that is neither a tensor, selected rows nor an
/// array; those of the gather.
StatusOr<LocalState> with_own_names(const LocalState& state, Gather& gather);

}  // namespace millrace::io
