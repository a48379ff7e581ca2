#pragma once

#include <cstdint>
#include <string_view>

#include "ps/transport/message.h"

namespace millrace::ps {

/// Reads the fields of a call's head apart from its items and the length of its text, without
/// memory for the items: a head of a MiB may announce a hundred thousand of them.
/// \param envelope  receives the fields; text and items stay empty
/// \param version   receives the version of the protocol
/// \returns false if the bytes are not fields of a message
bool read_envelope(std::string_view head, Request& envelope, uint32_t& version);

}  // namespace millrace::ps
