#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace millrace::io {

/// Names of the members of an npz archive, without ".npy". Several of them may make up one value
/// (npz.h says how).
using NpzNames = std::set<std::string>;

/// Moves a name and those of its dtype and LoD to the end of a list.
void take_names(NpzNames& names, const std::string& name, std::vector<std::string>& to);

/// Moves the names of an array: of its elements, and of its length.
/// \param length  that the archive states: elements behind it are values of their own; without one
///                the first gap ends the array
void take_array_names(NpzNames& names, const std::string& name, std::optional<int64_t> length,
                      std::vector<std::string>& to);

}  // namespace millrace::io
