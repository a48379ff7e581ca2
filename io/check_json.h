#pragma once

#include <cstdint>
#include <string_view>

#include "framework/base/status.h"

namespace millrace::io {

enum class JsonComments : uint8_t { kRefuse, kAllow };

/// The errors of parse_json() for a text that another reader takes apart: readers such as
/// nlohmann's keep the last of duplicate members, so one of two settings would be lost.
Status check_json(std::string_view text, JsonComments comments = JsonComments::kRefuse);

}  // namespace millrace::io
