#pragma once

#include <string>

#include "framework/base/status.h"

namespace google::protobuf {
class Message;
}

namespace millrace::fleet {

/// Parses the text form of a description.
/// \param what  its name in messages
/// Errors: kInvalidArgument with line and column of the first error.
Status parse_description(const std::string& text, const std::string& what,
                         google::protobuf::Message& out);

}  // namespace millrace::fleet
