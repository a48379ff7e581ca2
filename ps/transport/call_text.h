#pragma once

#include <string>

#include "ps/transport/message.h"

namespace millrace::ps {

/// "'send' of 'w' and 3 more", for messages about a call.
std::string describe_call(const Request& request);

}  // namespace millrace::ps
