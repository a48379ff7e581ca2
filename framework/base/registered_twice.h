#pragma once

#include <string_view>

namespace millrace {

/// Ends the process, because two things of one kind have the same name: for registries, where that
/// is a bug of this program and not of its input. Writes "internal error: <kind> '<name>' is
/// registered twice" to stderr and aborts.
///
/// \param kind  what is registered: "op", "pass"
[[noreturn]] void abort_registered_twice(std::string_view kind, std::string_view name);

}  // namespace millrace
