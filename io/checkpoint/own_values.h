#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "io/checkpoint/gather.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/state.h"

/// Values that are expected to be equal on all ranks but are not, such as the means of a batch norm
/// that each rank computes from its own rows.
namespace millrace::io {

/// "<name>@rank<r>": the name for the value of rank r if it differs from that of the lowest rank.
std::string name_of_rank(std::string_view name, int32_t rank);

/// The name under which a checkpoint stores the value of a rank: name_of_rank() if the checkpoint
/// has it, else the name itself.
std::string stored_name(const Manifest& manifest, std::string_view name, int32_t rank);

/// Compares the checksums of the whole values of all ranks. Values that differ from the value of
/// the lowest rank with the same name are renamed to name_of_rank(), so that each is saved. Must be
/// called on every rank.
/// \returns a state that refers to the same values
/// Errors: kInvalidArgument with the var for a value that is not a tensor, selected rows or an
/// array; those of the gather.
StatusOr<LocalState> with_own_names(const LocalState& state, Gather& gather);

}  // namespace millrace::io
