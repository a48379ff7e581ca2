#pragma once

#include <string>

#include "ps/transport/message.h"

namespace millrace::ps {

/// Describes a call for messages: "'send' of 'w' and 3 more".
std::string describe_call(const Request& request);

}  // namespace millrace::ps
