#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace millrace::io {

/// Names of the members of an npz archive, without ".npy". Several members may form one value (see
/// npz.h).
using NpzNames = std::set<std::string>;

/// Moves a name, and the names of its dtype and LoD, to the end of a list.
void take_names(NpzNames& names, const std::string& name, std::vector<std::string>& to);

/// Moves the names of an array: those of its elements and of its length.
/// \param length  as stated in the archive: elements beyond it are separate values. If absent, the
///                first gap ends the array
void take_array_names(NpzNames& names, const std::string& name, std::optional<int64_t> length,
                      std::vector<std::string>& to);

}  // namespace millrace::io
