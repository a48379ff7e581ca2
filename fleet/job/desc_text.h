#pragma once

#include <string>

#include "framework/base/status.h"

namespace google::protobuf {
class Message;
}

namespace millrace::fleet {

/// Reads the text form of a description. \param what  names it in messages
/// Errors: kInvalidArgument with line and column of the first fault.
Status parse_description(const std::string& text, const std::string& what,
                         google::protobuf::Message& out);

}  // namespace millrace::fleet
