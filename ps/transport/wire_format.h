#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace::ps {

/// Magic string at the start of every message; see proto/ps_service.proto.
inline constexpr std::string_view kWireMark = "MLR1";
/// Protocol version.
inline constexpr uint32_t kWireVersion = 1;
/// Length of the magic string and the length field of the head.
inline constexpr size_t kPreludeBytes = 8;

}  // namespace millrace::ps
